// The files of a standalone node that changed at rest: refused with a code and left alone, or the state is the one from before.

package local

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/disk"
)

func TestDamagedFiles(t *testing.T) {
	const flips, cuts = 100, 50
	made := t.TempDir()
	b := open(t, Config{Dir: made})
	grant(t, b, fsm.SchedulerLeader)
	require.NoError(t, b.Close())
	whole := map[string][]byte{}
	for _, name := range []string{stateFile, lockFile} {
		var err error
		whole[name], err = os.ReadFile(filepath.Join(made, name))
		require.NoError(t, err)
	}
	want, err := fsm.DecodeSnapshot(whole[stateFile])
	require.NoError(t, err)

	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{stateFile, lockFile} {
		refused, same := 0, 0
		for n := range flips + cuts {
			bad, how := disk.Flip(whole[name], rng)
			if n >= flips {
				bad, how = disk.Shorten(whole[name], n-flips, cuts)
			}
			dir := t.TempDir()
			for n, b := range map[string][]byte{stateFile: whole[stateFile], lockFile: whole[lockFile], name: bad} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, n), b, 0o600))
			}
			s, state, err := openStore(dir)
			if err == nil {
				require.Equal(t, want.Hash(), state.Hash(), "%s: %s", name, how)
				require.NoError(t, s.close())
				same++
				continue
			}
			var typed *cluster.Error
			require.ErrorAs(t, err, &typed, "%s: %s", name, how)
			require.NotEmpty(t, typed.Code)
			now, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			require.Equal(t, bad, now, "%s: %s: what is refused stays", name, how)
			refused++
		}
		t.Logf("%-5s %d refused, %d the state from before", name, refused, same)
		if name == stateFile {
			require.Equal(t, flips+cuts, refused)
		}
	}
}
