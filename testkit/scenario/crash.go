// A panic in one actor of a running daemon, for each kind of actor.

package scenario

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// Kinds are the kinds of actor that CrashActor crashes. The death of the root is CrashRoot's.
func Kinds() []actors.Kind {
	return []actors.Kind{
		actors.KindWatcher, actors.KindRoleSupervisor, actors.KindRole,
		actors.KindLeaderSupervisor, actors.KindLeader, actors.KindCoordination,
	}
}

// CrashActor makes one actor of the daemon that owns the role (or leads) panic
// under load. The process goes on and the role is active; after a crash of the
// role's own actor under a higher epoch, for no actor of a role is restarted in place.
func CrashActor(t testing.TB, w *World, kind actors.Kind) {
	w.moreLeases(t, 10)
	ctx := bounded(t)
	victim, before := w.owner(t, 0)
	if kind == actors.KindLeader {
		var err error
		victim, err = w.Leader(ctx)
		require.NoError(t, err)
	}
	pid, panics := victim.PID(), panicked(t, victim)
	crash(t, victim, kind)
	eventually(t, "a panic of the "+string(kind), func() bool { return panicked(t, victim) > panics })
	if kind == actors.KindRole {
		step(t, victim, before, trace.Inactive)
		w.owner(t, before)
	}
	w.moreLeases(t, 10)
	next, epoch := w.owner(t, 0)
	t.Logf("%s of %s crashed; epoch %d before, %d of %s now", kind, victim.Name, before, epoch, next.Name)
	require.Equal(t, pid, victim.PID(), "the process must survive")
}

// CrashRoot makes the root actor of the role's owner panic under load: the process
// ends with exit status 70 and another daemon has the role active within 5 s.
func CrashRoot(t testing.TB, w *World) {
	w.moreLeases(t, 10)
	ctx := bounded(t)
	victim, before := w.owner(t, 0)
	died := now()
	crash(t, victim, actors.KindRoot)
	code, err := victim.WaitExit(ctx)
	require.NoError(t, err)
	require.Equal(t, actors.ExitRootDied, code)
	successor, after := w.owner(t, before)
	require.NotEqual(t, victim.Name, successor.Name)
	within(t, 5*time.Second, died, step(t, successor, after, trace.Active).Mono, "active on "+successor.Name+" after the root's death")
	w.moreLeases(t, 10)
	require.NoError(t, victim.Resume(ctx))
	w.whole(t, victim)
}

// crash finds a living actor of the kind and crashes it. It may be between two lives at the first try.
func crash(t testing.TB, n *fleet.Node, kind actors.Kind) {
	t.Helper()
	ctx := bounded(t)
	eventually(t, n.Name+" has a living "+string(kind), func() bool {
		forest, err := n.Actors(ctx)
		if err != nil { // also when the last crash was answered by nobody
			return kind == actors.KindRoot && n.State() != "running"
		}
		for _, a := range forest.Actors {
			if a.Kind == kind && (a.Role == 0 || a.Role == role) {
				// A root takes its process along, perhaps before the daemon has answered.
				return n.Crash(ctx, a.Path) == nil || kind == actors.KindRoot && n.State() != "running"
			}
		}
		return false
	})
}

// panicked counts the panics in a daemon's log.
func panicked(t testing.TB, n *fleet.Node) int {
	t.Helper()
	return logged(t, n, "actor panicked")
}
