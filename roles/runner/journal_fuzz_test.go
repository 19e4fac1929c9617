// Fuzzing of the agent's own files: a crash leaves any beginning of the journal, a bad disk anything.

package runner

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/seal"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/corpus"
)

func FuzzJournal(f *testing.F) {
	line := func(e Entry) string {
		b, err := json.Marshal(e)
		require.NoError(f, err)
		return string(b) + "\n"
	}
	high := func(epoch fsm.Epoch) string {
		b, err := json.Marshal(map[fsm.Role]mark{fsm.SchedulerLeader: {Generation: 1, Epoch: epoch}})
		require.NoError(f, err)
		return string(b)
	}
	start, finish := line(Entry{What: EntryStart, Lease: someLease, Job: "j", Attempt: 1, Epoch: 7, Generation: 1}), line(Entry{What: EntryFinish, Lease: someLease, Outcome: Succeeded})
	closed := line(Entry{What: EntryClose, Lease: someLease})
	corpus.Add(f, "started", start, high(7))
	corpus.Add(f, "finished", start+finish, high(7))
	corpus.Add(f, "closed", start+finish+closed, high(7))
	corpus.Add(f, "cut", start+finish[:len(finish)/2], high(7))
	corpus.Add(f, "an empty line", start+"\n"+finish, high(7))
	corpus.Add(f, "null", "null\n", "null")
	corpus.Add(f, "cut beside null", start+finish[:len(finish)/2], "null")
	sealed, err := encodeLine(Entry{What: EntryStart, Lease: someLease, Job: "j", Attempt: 1, Epoch: 7, Generation: 1})
	require.NoError(f, err)
	corpus.Add(f, "sealed", string(sealed), string(seal.Add([]byte(high(7)))))
	corpus.Add(f, "the first line of an earlier build", finish+string(sealed), high(7))
	corpus.Add(f, "a line of an earlier build behind a sealed one", string(sealed)+finish, high(7))
	corpus.Add(f, "a wrong checksum", strings.Replace(string(sealed), "start", "close", 1), high(7)+"\n00000000\n")
	corpus.Add(f, "a list", "[]\n", "[]")
	corpus.Add(f, "nothing", "", "")
	corpus.Add(f, "no high-water mark", start, "{}")
	corpus.Add(f, "unknown role", start, `{"Nobody":{"generation":1,"epoch":2}}`)
	corpus.Add(f, "negative", `{"what":"start","lease":"x","attempt":-1,"epoch":-7}`+"\n", `{"SchedulerLeader":{"epoch":-1}}`)
	corpus.Add(f, "zeros", string(make([]byte, 64)), string(make([]byte, 16)))
	f.Fuzz(func(t *testing.T, starts, marks string) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, StartsFile), []byte(starts), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, highWaterFile), []byte(marks), 0o600))
		j, err := openJournal(dir, 0)
		if err != nil {
			for name, want := range map[string]string{StartsFile: starts, highWaterFile: marks} {
				b, err := os.ReadFile(filepath.Join(dir, name))
				require.NoError(t, err)
				require.Equal(t, want, string(b), "a directory that is refused stays as it is")
			}
			return
		}
		open := j.open
		for lease := range open {
			require.True(t, j.hasStarted(lease))
		}
		_, _, err = j.admit(fsm.SchedulerLeader, mark{Generation: 1, Epoch: 9})
		require.NoError(t, err)
		require.NoError(t, j.close())
		again, err := openJournal(dir, 0)
		require.NoError(t, err, "what was accepted once is accepted again")
		require.Equal(t, open, again.open)
		require.Equal(t, j.high, again.high)
		require.NoError(t, again.close())
	})
}
