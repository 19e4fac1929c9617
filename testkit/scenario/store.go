// Bytes: the artifact store is away and what needs it waits; and no user's byte ever reaches the Raft log.

package scenario

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// StoreAway takes the directory of the artifact store away, as a lost mount does.
// Jobs that need no bytes are leased and end; a job that has an artifact to fetch
// waits, keeps its one lease and says for what; a new source is refused with a
// reason; and when the directory is back everything ends, logs complete.
func StoreAway(t testing.TB, w *World) {
	ctx := bounded(t)
	g := w.gate(t, "store")
	build := shell("build", "echo 42 > answer")
	build.Outputs = []runner.Output{{Name: "answer", Path: "answer"}}
	hold := shell("hold", g.wait())
	use := shell("use", "cat answer")
	use.Needs = []string{"build", "hold"}
	run := w.submit(t, "bytes", build, hold, use)
	eventually(t, "the artifact is stored", func() bool { return w.job(t, run, "build").State == runner.JobSucceeded })
	eventually(t, "its log is stored", func() bool { return w.job(t, run, "build").Leases[0].LogFinal })

	store, away := filepath.Join(w.Dir(), "cas"), filepath.Join(w.Dir(), "cas.away")
	require.NoError(t, os.Rename(store, away))
	g.open(t)
	var note string
	eventually(t, "the job says what it waits for", func() bool {
		if leases := w.job(t, run, "use").Leases; len(leases) > 0 {
			note = leases[0].Note
		}
		return note != ""
	})
	require.Contains(t, note, "waiting for the artifact answer of build")
	plain := w.submit(t, "plain", shell("plain", "echo plain"))
	require.False(t, w.ended(t, plain, runner.RunSucceeded).Jobs[0].Leases[0].LogFinal, "a log was stored in a store that is away")
	_, err := w.Upload(ctx, t.TempDir())
	require.ErrorContains(t, err, "FY-CAS-001")
	require.Equal(t, runner.JobLeased, w.job(t, run, "use").State)

	require.NoError(t, os.Rename(away, store))
	done := w.ended(t, run, runner.RunSucceeded)
	require.Equal(t, 1, done.Jobs[2].Attempt)
	require.Equal(t, "42\n", done.Jobs[2].Leases[0].OutputTail)
	eventually(t, "the log arrives", func() bool { return w.job(t, plain, "plain").Leases[0].LogFinal })
	t.Logf("meanwhile: %s", note)
}

// Canary requires that no byte of what users gave or jobs wrote under this word
// is in any daemon's Raft files, where a word that belongs there is found.
func Canary(t testing.TB, w *World, word string) {
	require.Positive(t, w.count(t, `SELECT count(*) FROM forge.runs WHERE name LIKE $1 || '%'`, word))
	for _, n := range w.Nodes() {
		dir := filepath.Join(n.DataDir(), "raft")
		require.Positive(t, occurrences(t, dir, n.Name), "the search finds nothing at all in the files of %s", n.Name)
		require.Zero(t, occurrences(t, dir, word), "%s has a user's bytes in its Raft files", n.Name)
	}
}

// NoEntries requires that a run with a log and an artifact adds nothing to the Raft log.
func NoEntries(t testing.TB, w *World, word string) {
	j := shell(word+"-job", "echo "+word+"-log; echo "+word+"-file > file")
	j.Outputs = []runner.Output{{Name: "file", Path: "file"}}
	added := uint64(1)
	for try := 0; added > 0 && try < tries; try++ { // on a starved machine a role may move meanwhile, which is an entry
		before := w.settledIndex(t)
		w.ended(t, w.submit(t, word+"-quiet", j), runner.RunSucceeded)
		added = w.settledIndex(t) - before
	}
	require.Zero(t, added, "a run was proposed to Raft")
}

// settledIndex is the applied index once two readings of all daemons agree.
func (w *World) settledIndex(t testing.TB) (index uint64) {
	t.Helper()
	eventually(t, "the log rests", func() bool {
		var seen []uint64
		for range 2 {
			for _, n := range w.Nodes() {
				s, err := n.Status(bounded(t))
				require.NoError(t, err)
				seen = append(seen, s.AppliedIndex)
			}
		}
		index = seen[0]
		for _, i := range seen {
			if i != index {
				return false
			}
		}
		return true
	})
	return index
}

// occurrences counts the files below dir that hold a text.
func occurrences(t testing.TB, dir, text string) (n int) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && contains(b, text) {
			n++
		}
		return err
	}))
	return n
}
