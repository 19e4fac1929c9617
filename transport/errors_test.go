// Errors: what becomes of their texts on the wire.

package transport

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestErrorTextsSurviveTheWire: a text that is too long, or not UTF-8, must not
// cost the caller the error's code and kind.
func TestErrorTextsSurviveTheWire(t *testing.T) {
	c, err := newCodec()
	require.NoError(t, err)
	for name, text := range map[string]string{
		"short": "as it is", "cut inside a character": strings.Repeat("x", maxWireText-1) + "…", "not UTF-8": "caf\xe9 closed",
	} {
		b, err := c.encode(wireError(errors.New(text)))
		require.NoError(t, err, name)
		var w WireError
		require.NoError(t, c.decode(b, &w), name)
		require.Equal(t, "FY-NET-099", w.Code, name)
		require.LessOrEqual(t, len(w.Message), maxWireText, name)
	}
}
