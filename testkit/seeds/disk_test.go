// A sick disk is sick for every store on it.

package seeds

import (
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

func TestSickDiskUnderEveryStore(t *testing.T) {
	d := newDisk(1, 0)
	below, kept := d.below(), raft.NewInmemStore()
	log, stable, snapshots := below.Log(kept), below.Stable(kept), below.Snapshots(raft.NewInmemSnapshotStore())
	create := func() (raft.SnapshotSink, error) {
		return snapshots.Create(raft.SnapshotVersionMax, 2, 1, raft.Configuration{}, 1, nil)
	}
	entry := &raft.Log{Index: 1}
	begun, err := create()
	require.NoError(t, err)
	writes := map[string]func() error{
		"entry":    func() error { return log.StoreLog(entry) },
		"entries":  func() error { return log.StoreLogs([]*raft.Log{entry}) },
		"deletion": func() error { return log.DeleteRange(1, 1) },
		"vote":     func() error { return stable.Set([]byte("vote"), nil) },
		"term":     func() error { return stable.SetUint64([]byte("term"), 1) },
		"begin":    func() error { _, err := create(); return err },
		"end":      begun.Close,
	}
	d.set(func(d *disk) { d.fail = 1 })
	for name, write := range writes {
		require.ErrorIs(t, write(), errDisk, name)
	}
	_, failed, _ := d.counts()
	require.Equal(t, len(writes), failed)
	require.NoError(t, begun.Close(), "it was closed before")
	d.set(func(d *disk) { d.fail = 0 })
	delete(writes, "end")
	for name, write := range writes {
		require.NoError(t, write(), name)
	}
	sink, err := create()
	require.NoError(t, err)
	require.NoError(t, sink.Close())
}
