// What a group promises: all that began is waited for, nothing begins afterwards.

package tasks_test

import (
	"testing"
	"testing/synctest"

	"github.com/forgeyard/forgeyard/transport/tasks"
	"github.com/stretchr/testify/require"
)

func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g tasks.Group
		release := make(chan struct{})
		require.True(t, g.Begin())
		require.True(t, g.Go(func() { <-release }))
		g.Refuse()
		require.False(t, g.Begin())
		require.False(t, g.Go(func() { t.Error("began after the end") }))

		waited := make(chan struct{})
		go func() {
			g.Wait()
			close(waited)
		}()
		ended := func() bool {
			synctest.Wait()
			select {
			case <-waited:
				return true
			default:
				return false
			}
		}
		require.False(t, ended())
		close(release)
		require.False(t, ended(), "one task has not ended")
		g.End()
		require.True(t, ended())
	})
}
