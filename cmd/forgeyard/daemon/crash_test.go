// Crash routes exist for a harness only.

package daemon

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster/config"
)

func TestCrashRoutesNeedPermission(t *testing.T) {
	out := Outside{Logger: slog.New(slog.DiscardHandler)}
	require.Empty(t, New(config.Config{}, Start{}, out).crashRoutes())
	out.Actors = actors.Config{AllowCrash: true}
	require.Len(t, New(config.Config{}, Start{}, out).crashRoutes(), 1)
}
