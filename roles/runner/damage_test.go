// Files of the agent's directory that changed at rest: refused with a code and left alone, or they say what they said before.

package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/disk"
)

// memory is what a journal knows.
type memory struct {
	high    map[fsm.Role]mark
	started map[string]bool
	open    map[string]Entry
}

// remember opens a journal, and closes it.
func remember(t *testing.T, dir string) (memory, error) {
	t.Helper()
	j, err := openJournal(dir, 0)
	if err != nil {
		return memory{}, err
	}
	require.NoError(t, j.close())
	return memory{j.high, j.started, j.open}, nil
}

// journalFiles writes the two files of an agent that has run a few leases, and returns them.
func journalFiles(t *testing.T) (files map[string][]byte) {
	t.Helper()
	dir := t.TempDir()
	j, err := openJournal(dir, 0)
	require.NoError(t, err)
	for _, role := range []fsm.Role{fsm.SchedulerLeader, fsm.ReleaseCoordinator} {
		_, _, err = j.admit(role, mark{Generation: 3, Epoch: 1957})
		require.NoError(t, err)
	}
	code := 7
	for i := range 5 {
		lease := fmt.Sprintf("00000000-0000-0000-0000-00000000000%d", i)
		order := Entry{Lease: lease, Job: fmt.Sprintf("job-%d", i), Attempt: 1, Epoch: 1957, Generation: 3}
		for _, what := range []EntryKind{EntryDispatch, EntryStart, EntryFinish, EntryClose}[:4-i%2] {
			e := order
			if e.What = what; what == EntryFinish {
				e.Outcome, e.ExitCode, e.LogBytes = Failed, &code, 123456
			}
			require.NoError(t, j.write(e, true))
		}
	}
	require.NoError(t, j.close())
	files = map[string][]byte{}
	for _, name := range []string{StartsFile, highWaterFile} {
		files[name], err = os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
	}
	return files
}

func lay(t *testing.T, files map[string][]byte) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, b := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	return dir
}

// TestDamagedFiles: of the journal the end may be missing, as after a crash, and what is
// left is what an agent had written by then; the leases behind it run out, for no other process is told to start them.
func TestDamagedFiles(t *testing.T) {
	const flips, cuts = 100, 50
	whole := journalFiles(t)
	known := []memory{{map[fsm.Role]mark{}, map[string]bool{}, map[string]Entry{}}} // after each line
	for i, b := range whole[StartsFile] {
		if b == '\n' {
			m, err := remember(t, lay(t, map[string][]byte{StartsFile: whole[StartsFile][:i+1]}))
			require.NoError(t, err)
			known = append(known, m)
		}
	}
	require.Len(t, known, 1+5*4-2)
	high, err := remember(t, lay(t, map[string][]byte{highWaterFile: whole[highWaterFile]}))
	require.NoError(t, err)
	require.Len(t, high.high, 2)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range slices.Sorted(maps.Keys(whole)) {
		refused, same, shorter := 0, 0, 0
		for n := range flips + cuts {
			damage := func(b []byte) ([]byte, string) { return disk.Flip(b, rng) }
			if n >= flips {
				damage = func(b []byte) ([]byte, string) { return disk.Shorten(b, n-flips, cuts) }
			}
			files := maps.Clone(whole)
			bad, how := damage(whole[name])
			files[name] = bad
			dir := lay(t, files)
			got, err := remember(t, dir)
			if err != nil {
				require.ErrorIs(t, err, ErrDirDamaged, "%s: %s", name, how)
				require.NotEmpty(t, err.(*cluster.Error).Hint)
				for name, b := range files {
					now, err := os.ReadFile(filepath.Join(dir, name))
					require.NoError(t, err)
					require.Equal(t, b, now, "%s: %s: what is refused stays", name, how)
				}
				refused++
				continue
			}
			require.Equal(t, high.high, got.high, "%s: %s", name, how)
			i := slices.IndexFunc(known, func(m memory) bool {
				return reflect.DeepEqual(m.started, got.started) && reflect.DeepEqual(m.open, got.open)
			})
			require.GreaterOrEqual(t, i, 0, "%s: %s: it knows what no agent has written", name, how)
			if i == len(known)-1 {
				same++
			} else {
				shorter++
			}
		}
		t.Logf("%-14s %d refused, %d the same as before, %d without an end", name, refused, same, shorter)
		require.Greater(t, refused, flips*9/10)
		if name == highWaterFile {
			require.Zero(t, shorter)
		}
	}
}

// TestFilesOfAnEarlierBuild: without checksums they are read once, and written again with them.
func TestFilesOfAnEarlierBuild(t *testing.T) {
	whole := journalFiles(t)
	want, err := remember(t, lay(t, whole))
	require.NoError(t, err)
	var plain []byte
	for line := range bytes.Lines(whole[StartsFile]) {
		e, sealed, err := decodeLine(bytes.TrimSuffix(line, []byte{'\n'}))
		require.NoError(t, err)
		require.True(t, sealed)
		b, err := json.Marshal(e)
		require.NoError(t, err)
		plain = append(append(plain, b...), '\n')
	}
	marks, err := json.Marshal(want.high)
	require.NoError(t, err)
	dir := lay(t, map[string][]byte{StartsFile: append(plain, `{"what":"st`...), highWaterFile: marks})
	got, err := remember(t, dir)
	require.NoError(t, err)
	require.Equal(t, want.open, got.open)
	require.Equal(t, want.high, got.high)
	for lease := range got.open {
		require.True(t, got.started[lease])
	}
	again, err := remember(t, dir)
	require.NoError(t, err)
	require.Equal(t, got, again)
	b, err := os.ReadFile(filepath.Join(dir, StartsFile))
	require.NoError(t, err)
	for line := range bytes.Lines(b) {
		_, sealed, err := decodeLine(bytes.TrimSuffix(line, []byte{'\n'}))
		require.NoError(t, err)
		require.True(t, sealed)
	}
	b, err = os.ReadFile(filepath.Join(dir, highWaterFile))
	require.NoError(t, err)
	require.Equal(t, whole[highWaterFile], b)

	// Behind a line with a checksum there is none without.
	mixed := append(slices.Clone(whole[StartsFile]), plain...)
	_, err = remember(t, lay(t, map[string][]byte{StartsFile: mixed}))
	require.ErrorIs(t, err, errUnsealed)
}
