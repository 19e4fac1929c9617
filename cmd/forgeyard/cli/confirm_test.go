// Reading that may hang for ever ends with the command's context.

package cli

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUntilInterrupted(t *testing.T) {
	failed := errors.New("failed")
	got, err := untilInterrupted(t.Context(), func() (int, error) { return 3, failed })
	require.Equal(t, 3, got)
	require.ErrorIs(t, err, failed)

	ctx, cancel := context.WithCancel(t.Context())
	hangs := make(chan struct{})
	defer close(hangs)
	_, err = untilInterrupted(ctx, func() (int, error) {
		cancel()
		<-hangs
		return 3, nil
	})
	require.ErrorIs(t, err, context.Canceled)
}
