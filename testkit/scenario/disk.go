// A daemon whose disk refuses one operation on its log, or never ends it: it ends by itself, the fleet goes on, and it comes back whole.

package scenario

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/raftnode"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/testkit/disk"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// logStore is the file of the log, of the term and of the vote, below a daemon's data directory.
const logStore = "raft/raft.db"

// RefusedSync is a fault of FailDisk: fsync answers EIO.
func RefusedSync() disk.Fault { return disk.Fault{Op: disk.Sync, Errno: unix.EIO} }

// RefusedWrite is a fault of FailDisk: a write answers EIO.
func RefusedWrite() disk.Fault { return disk.Fault{Op: disk.Write, Errno: unix.EIO} }

// HungSync is a fault of FailDisk: fsync never answers.
func HungSync() disk.Fault { return disk.Fault{Op: disk.Sync, Delay: disk.Hang} }

// FailDisk has the disk fail once under the log of a follower, and then of the leader,
// under load. Either daemon ends by itself with the exit status of its disk, at the latest
// when a sync has hung for 10 s, and says why; once the leader has ended, the role is active
// elsewhere within 5 s; nothing that was acknowledged is lost; and started again, on a disk
// that is sound, it is a healthy voter that agrees with the others. It needs what testkit/disk
// needs, and no root: where the kernel does not let one process supervise another one's file
// operations, it fails.
func FailDisk(t testing.TB, w *World, fault disk.Fault) {
	w.moreLeases(t, 10)
	confine := build(t, "testkit/disk/confine")
	leader, err := w.Leader(bounded(t))
	require.NoError(t, err)
	disks := map[*fleet.Node]*disk.Process{}
	for _, n := range w.Nodes() {
		if n != leader {
			disks[n] = w.supervise(t, n, confine, n.DataDir())
		}
	}
	leader = w.leads(t, disks)
	for n := range disks {
		if n != leader {
			w.failDisk(t, n, disks[n], fault)
			delete(disks, n)
		}
	}
	leader = w.leads(t, disks)
	w.failDisk(t, leader, disks[leader], fault)
}

// supervise starts a daemon again with what it does to files below dir in this process's hands.
func (w *World) supervise(t testing.TB, n *fleet.Node, confine, dir string) (p *disk.Process) {
	t.Helper()
	require.NoError(t, n.Kill())
	require.NoError(t, n.StartBy(func(cmd *exec.Cmd) (func() error, error) {
		cmd.Path, cmd.Args = confine, append([]string{confine, cmd.Path}, cmd.Args[1:]...)
		var err error
		if p, err = disk.Start(cmd, dir); err != nil {
			return nil, err
		}
		return p.Wait, nil
	}))
	w.whole(t, n)
	return p
}

// leads kills leaders until one of these daemons is it.
func (w *World) leads(t testing.TB, these map[*fleet.Node]*disk.Process) *fleet.Node {
	t.Helper()
	for range 2 * tries {
		leader, err := w.Leader(bounded(t))
		require.NoError(t, err)
		if these[leader] != nil {
			return leader
		}
		_, epoch := w.owner(t, 0)
		require.NoError(t, leader.Kill())
		w.owner(t, epoch) // each change of the leader raises it
		require.NoError(t, leader.Resume(bounded(t)))
		w.whole(t, leader)
	}
	require.FailNow(t, "none of the daemons that are supervised came to lead")
	return nil
}

// failDisk hits one daemon and has it back.
func (w *World) failDisk(t testing.TB, victim *fleet.Node, p *disk.Process, fault disk.Fault) {
	t.Helper()
	ctx := bounded(t)
	says := cluster.ErrStoreFailed.Code
	if fault.Delay == disk.Hang {
		says = raftnode.ErrStoreStalled.Code
	}
	said, corrupt := logged(t, victim, says), logged(t, victim, cluster.ErrStoreCorrupt.Code)
	owner, before := w.owner(t, 0)
	seen, stop := w.entries(t)
	defer stop()
	eventually(t, "entries are acknowledged", func() bool { return seen().count > 2 })
	fault.Path, fault.Times = logStore, 1
	p.Inject(fault)
	hit := now()
	code, err := victim.WaitExit(ctx)
	require.NoError(t, err)
	died := now()
	if fault.Delay == disk.Hang {
		within(t, 11*time.Second, hit, died, victim.Name+" ended") // it looks twenty times in ten seconds
	}
	require.Equal(t, exitStorage, code, "see %s", victim.LogFile())
	require.Equal(t, []int{1}, p.Hits())
	require.Greater(t, logged(t, victim, says), said, "see %s", victim.LogFile())
	require.Equal(t, corrupt, logged(t, victim, cluster.ErrStoreCorrupt.Code), "what the disk refuses is not damaged")

	successor, after := owner, before
	if owner == victim {
		successor, after = w.ownerBeside(t, victim, before)
		within(t, 5*time.Second, died, step(t, successor, after, trace.Active).Mono, "active on "+successor.Name+" after the disk of "+victim.Name+" failed")
	}
	w.moreLeases(t, 10)
	stop() // it may have had nothing acknowledged since: a scope that the victim held is its until it is back
	require.NoError(t, victim.Resume(ctx))
	w.whole(t, victim)
	w.agree(t, seen())
	w.moreLeases(t, 10)
	t.Logf("%s of %s: exit %d, %s; epoch %d of %s, then %d of %s", fault.Op, victim.Name, code, says, before, owner.Name, after, successor.Name)
}

// agree waits until all daemons show the same coordination state, with what was acknowledged.
func (w *World) agree(t testing.TB, seen acknowledged) {
	t.Helper()
	ctx := bounded(t)
	eventually(t, "all daemons show the same state", func() bool {
		states := map[string]bool{}
		for _, n := range w.Nodes() {
			s, err := n.Status(ctx)
			if err != nil || s.AppliedIndex < seen.index || s.Epoch < seen.epoch {
				return false
			}
			state := fmt.Sprint(s.ClusterID, s.Generation, s.AppliedIndex, s.Epoch, s.Leader.Epoch, s.Maintenance)
			for _, m := range s.Members {
				state += fmt.Sprint(m.Node, m.Incarnation, m.Role, m.State, m.Endpoint)
			}
			for _, r := range s.RoleRows {
				state += fmt.Sprint(r.Role, r.Owner, r.Incarnation, r.Epoch)
			}
			states[state] = true
		}
		return len(states) == 1
	})
}
