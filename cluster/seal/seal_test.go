// What was sealed comes back; anything else is refused, or told apart as never sealed.

package seal

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOpen(t *testing.T) {
	whole := Add([]byte("line"))
	line, sealed, err := Open(whole)
	require.NoError(t, err)
	require.True(t, sealed)
	require.Equal(t, "line", string(line))
	for _, plain := range []string{"", "line", "line\n"} {
		line, sealed, err := Open([]byte(plain))
		require.NoError(t, err)
		require.False(t, sealed)
		require.Contains(t, "line", string(line))
	}
	for i := len("line\n") + 1; i < len(whole); i++ {
		_, sealed, err := Open(whole[:i])
		require.ErrorIs(t, err, ErrBroken)
		require.True(t, sealed)
	}
	for i := range whole {
		for bit := range 8 {
			bad := append([]byte(nil), whole...)
			bad[i] ^= 1 << bit
			line, sealed, err := Open(bad)
			require.True(t, err != nil || !sealed && string(line) != "line", "bit %d of byte %d", bit, i)
		}
	}
	_, _, err = Open(append(whole, '\n'))
	require.ErrorIs(t, err, ErrBroken)
}
