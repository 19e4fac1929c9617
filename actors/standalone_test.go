// A standalone node in real time: the local backend, the service, placement and the actors together.

package actors

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/local"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
)

func TestStandaloneNode(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	last := fsm.Epoch(0)
	for range 2 { // the second process of the node starts above every epoch of the first
		last = runStandalone(t, dir, last)
	}
}

func runStandalone(t *testing.T, dir string, above fsm.Epoch) fsm.Epoch {
	backend, err := local.Open(local.Config{Dir: dir})
	require.NoError(t, err)
	p := &probe{role: role}
	recorder := &trace.Recorder{}
	service := cluster.NewService(cluster.ServiceConfig{Backend: backend, Tracer: recorder, Roles: []fsm.Role{role}})
	self := backend.Self()
	backend.SetReporter(func() cluster.HealthReport {
		return cluster.HealthReport{
			Node: self.Node, Incarnation: self.Incarnation, PGWritable: true, PGWritableFor: time.Hour,
			RunnableRoles: []fsm.Role{role}, AppliedIndex: backend.View().Index, Roles: service.Status(),
		}
	})
	service.Start()
	sys, err := Start(Config{
		Trees: service, Backend: backend, Roles: []RoleSpec{p.spec()}, NewPlanner: NewPlacement(self.Node, time.Now).Begin,
		Tracer: recorder, AllowCrash: true,
	})
	require.NoError(t, err)

	activeAbove := func(floor fsm.Epoch) fsm.Epoch {
		require.Eventually(t, func() bool {
			running := p.epochs()
			return len(running) == 1 && running[0] > floor && backend.View().Role(role).Epoch == running[0]
		}, 10*time.Second, 5*time.Millisecond)
		return backend.View().Role(role).Epoch
	}
	first := activeAbove(above)
	require.NoError(t, sys.Crash(treePath(role, first)))
	second := activeAbove(first)
	require.False(t, p.overlapped())

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, service.Close(ctx))
	require.True(t, backend.View().Role(role).Vacant(), "a closing node releases its roles")
	require.NoError(t, sys.Stop(ctx))
	require.NoError(t, backend.Close())
	require.Empty(t, sys.Tree())
	return second
}

// After Stop nothing of the system remains, whatever it was doing.
func TestNoGoroutineLeak(t *testing.T) {
	defer goleak.VerifyNone(t)
	h := boot(t, planWith(grantHere), &probe{role: role})
	h.backend.lead()
	require.Eventually(t, func() bool { return len(h.probes[role].epochs()) == 1 }, 10*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() { _ = h.sys.Do(ctx, role, nothing) })
	}
	require.NoError(t, h.sys.Stop(ctx))
	require.NoError(t, h.sys.Stop(ctx), "stopping twice is harmless")
	require.NoError(t, h.service.Close(ctx))
	callers.Wait()
}
