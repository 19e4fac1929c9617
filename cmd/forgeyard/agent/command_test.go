// An agent that is started without its files.

package agent

import (
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/transport/pki"
)

func TestWithoutFilesSaysWhatWritesThem(t *testing.T) {
	dir := t.TempDir()
	cmd := Command("test")
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"--cert", filepath.Join(dir, "agent.crt"), "--dir", dir})
	err := cmd.ExecuteContext(t.Context())
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, err, pki.ErrFiles)
	var refused *pki.Error
	require.ErrorAs(t, err, &refused)
	require.Contains(t, refused.Message, "an agent needs a certificate")
	for _, part := range []string{"forgeyard pki issue agent NAME", "--cert", "--key", "--ca", "--endpoints"} {
		require.Contains(t, refused.Hint, part)
	}
}
