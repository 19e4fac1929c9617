// Traces written and read again: whole lines, torn ends, writes that are lost.

package trace

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/fsm"
)

func TestFileRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace")
	f, err := Open(path)
	require.NoError(t, err)
	before := Mono(time.Now())
	want := Event{Node: fsm.NodeID{1}, Incarnation: fsm.IncarnationID{2}, Kind: Inactive, Role: fsm.SchedulerLeader, Generation: 3, Epoch: 17, Detail: "moved"}
	f.Trace(want)
	f.Trace(Event{Kind: Exit})
	require.NoError(t, f.Close())

	got, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, []Kind{Inactive, Exit}, Kinds(got))
	require.GreaterOrEqual(t, got[0].Mono, before)
	require.GreaterOrEqual(t, got[1].Mono, got[0].Mono)
	got[0].Mono = 0
	require.Equal(t, want, got[0])
}

func TestAppendKeepsWhatIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace")
	for range 2 {
		f, err := Open(path)
		require.NoError(t, err)
		f.Trace(Event{Kind: Grant})
		require.NoError(t, f.Close())
	}
	got, err := Read(path)
	require.NoError(t, err)
	require.Len(t, got, 2)
}

func TestConcurrentWritersKeepLinesWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace")
	f, err := Open(path)
	require.NoError(t, err)
	other, err := Open(path) // as a second process would
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			to := f
			if i%2 == 0 {
				to = other
			}
			for n := range 200 {
				to.Trace(Event{Kind: LoopStart, Epoch: fsm.Epoch(n), Detail: "lease"})
			}
		})
	}
	wg.Wait()
	require.NoError(t, f.Close())
	require.NoError(t, other.Close())
	got, err := Read(path)
	require.NoError(t, err)
	require.Len(t, got, 1600)
}

func TestReadLeavesOutATornLastLineOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace")
	line := `{"mono_ns":5,"kind":"grant"}` + "\n"
	require.NoError(t, os.WriteFile(path, []byte(line+`{"mono_ns":6,"ki`), 0o600))
	got, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, []Event{{Mono: 5, Kind: Grant}}, got)

	require.NoError(t, os.WriteFile(path, []byte(`{"mono_ns"`+"\n"+line), 0o600))
	_, err = Read(path)
	require.ErrorContains(t, err, "trace line 1")
}

func TestCloseReportsALostWrite(t *testing.T) {
	f, err := Open(filepath.Join(t.TempDir(), "trace"))
	require.NoError(t, err)
	require.NoError(t, f.f.Close())
	f.Trace(Event{Kind: Grant})
	require.ErrorIs(t, f.Close(), os.ErrClosed)
}

func TestMonoIsVirtualInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Recorder
		r.Trace(Event{Kind: Grant, Role: fsm.SchedulerLeader, Epoch: 1})
		<-time.After(time.Hour)
		r.Trace(Event{Kind: Inactive, Role: fsm.SchedulerLeader, Epoch: 1})
		r.Trace(Event{Kind: Grant, Role: fsm.SchedulerLeader, Epoch: 2})
		got := r.Of(fsm.SchedulerLeader, 1)
		require.Equal(t, []Kind{Grant, Inactive}, Kinds(got))
		require.Equal(t, int64(time.Hour), got[1].Mono-got[0].Mono)
	})
}
