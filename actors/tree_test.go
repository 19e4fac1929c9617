// The tree of a role: its shape, how it becomes active, and the order in which it ends.

package actors

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
)

const role = fsm.SchedulerLeader

func TestTreeShape(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		epoch := h.active(role)
		h.backend.lead()
		h.eventually("a leader", func() bool { return h.sys.lead.current() != nil })
		tree := treePath(role, epoch)
		lead := h.sys.lead.current().path()
		parents := map[string]string{}
		for _, i := range h.sys.Tree() {
			parents[i.Path] = i.Parent
		}
		require.Equal(t, map[string]string{
			"root": "", "coordination": "root", "watcher": "coordination", "leader": "coordination", lead: "leader",
			"roles/SchedulerLeader": "coordination", "roles/ReleaseCoordinator": "coordination",
			tree: "roles/SchedulerLeader", tree + "/idle": tree,
		}, parents)
	}, &probe{role: role}, &probe{role: fsm.ReleaseCoordinator})
}

func TestSpawnOnlyForOwner(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 2)
		h.settle(5 * time.Second)
		require.Empty(t, h.probes[role].seen())
		h.backend.assign(role, 1)
		h.active(role)
		h.backend.assign(role, 2)
		h.gone(role)
	}, &probe{role: role})
}

func TestScanBeforeWork(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		epoch := h.active(role)
		require.Equal(t, []string{"raise", "reconcile", "loop idle"}, h.probes[role].seen())
		h.requireInOrder(role, epoch, trace.Grant, trace.Fenced, trace.Active, trace.LoopStart)
		info, ok := h.entry(treePath(role, epoch))
		require.True(t, ok)
		require.Equal(t, "3 jobs, 1 lease", info.LastScan.Result)
	}, &probe{role: role})
}

// Every cause of a revocation leads through the same order (§294).
func TestStopOrderAllCauses(t *testing.T) {
	var failing atomic.Bool
	causes := map[string]struct {
		strike  func(*host)
		returns bool // the role comes back here under a higher epoch
	}{
		"reassigned":             {func(h *host) { h.backend.assign(role, 2) }, false},
		"vacated":                {func(h *host) { h.backend.vacate(role) }, false},
		"unconfirmed":            {func(h *host) { h.backend.cut(); h.settle(2 * time.Second); h.backend.heal() }, true},
		"fenced":                 {func(h *host) { h.probes[role].lastGuard().Lost(cluster.ErrFenced) }, true},
		"unknown":                {func(h *host) { h.probes[role].lastGuard().Lost(errTest) }, true},
		"panic":                  {func(h *host) { h.crash(treePath(role, h.backend.view().Role(role).Epoch)) }, true},
		"supervisor panic":       {func(h *host) { h.crash(rolePath(role)) }, true},
		"upper supervisor panic": {func(h *host) { h.crash(pathCoordination) }, true},
		"budget of a loop":       {func(h *host) { failing.Store(true) }, false},
		"shutdown":               {func(h *host) { h.shutdown() }, false},
	}
	for name, c := range causes {
		t.Run(name, func(t *testing.T) {
			failing.Store(false)
			p := &probe{role: role, loop: func(ctx context.Context, _ cluster.RoleGuard) error {
				for {
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(10 * time.Millisecond):
						if failing.Load() {
							return errTest
						}
					}
				}
			}}
			bubble(t, nil, func(t *testing.T, h *host) {
				h.backend.assign(role, 1)
				epoch := h.active(role)
				c.strike(h)
				h.eventually("the tree ended", func() bool {
					return slices.Contains(trace.Kinds(h.trace.Of(role, epoch)), trace.Terminated)
				})
				h.requireInOrder(role, epoch, trace.LoopStart, trace.Inactive, trace.Cancel, trace.Invalidate, trace.LoopEnd, trace.Terminated)
				if c.returns {
					require.Greater(t, h.active(role), epoch)
				} else {
					h.settle(100 * time.Millisecond)
					require.Empty(t, h.probes[role].epochs())
				}
				require.False(t, p.overlapped())
			}, p)
		})
	}
}

// Revoking does not wait for the mailbox: with the handler stuck the guard is inactive at once.
func TestStopOrderWhileBlocked(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		epoch := h.active(role)
		release := make(chan struct{})
		require.NoError(t, h.sys.Stall(treePath(role, epoch), release))
		h.settle(0)
		guard := h.probes[role].lastGuard()
		began := time.Now()
		h.backend.assign(role, 2)
		h.eventually("revoked", func() bool { return guard.State() == cluster.GuardRevoked && guard.Context().Err() != nil })
		require.Less(t, time.Since(began), 50*time.Millisecond)
		h.settle(2 * time.Second)
		h.requireInOrder(role, epoch, trace.Invalidate, trace.Poison, trace.Stop)
		require.NotContains(t, trace.Kinds(h.trace.Of(role, epoch)), trace.Terminated, "a stuck actor has not ended")
		back := h.backend.assign(role, 1)
		h.settle(2 * time.Second)
		require.Equal(t, epoch, h.sys.treeOf(role).epoch, "no second tree beside the stuck one")
		close(release)
		require.Equal(t, back, h.active(role))
	}, &probe{role: role})
}

// A loop that ignores its context keeps the next epoch out, not its guard alive.
func TestLoopIgnoresContext(t *testing.T) {
	p := &probe{role: role}
	p.loop = func(context.Context, cluster.RoleGuard) error { <-p.release; return nil }
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		epoch := h.active(role)
		guard := p.lastGuard()
		h.backend.vacate(role)
		h.settle(time.Second)
		require.ErrorIs(t, guard.Check(), cluster.ErrFenced)
		h.backend.assign(role, 1)
		h.settle(11 * time.Second) // past the stop bound of the service
		require.Equal(t, []fsm.Epoch{epoch}, p.epochs())
		require.Contains(t, <-h.exits, "did not end")
		require.NotContains(t, trace.Kinds(h.trace.Of(role, epoch)), trace.Terminated)
		close(p.release)
		h.eventually("the next epoch", func() bool { return !slices.Contains(p.epochs(), epoch) && len(p.epochs()) == 1 })
		require.False(t, p.overlapped())
	}, p)
}

func TestBringUpRetriesABlip(t *testing.T) {
	var left atomic.Int32
	left.Store(2)
	blip := func(context.Context, cluster.RoleGuard) error {
		if left.Add(-1) >= 0 {
			return &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-TEST-002", Message: "no connection"}
		}
		return nil
	}
	bubble(t, nil, func(t *testing.T, h *host) {
		granted := h.backend.assign(role, 1)
		require.Equal(t, granted, h.active(role), "the same epoch became active")
		require.Equal(t, []string{"raise", "raise", "raise", "reconcile", "loop idle"}, h.probes[role].seen())
	}, &probe{role: role, raise: blip})
}

func TestElectionStabilityBringUpGivesUp(t *testing.T) {
	outage := &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-TEST-002", Message: "no connection"}
	foreign := &cluster.Error{Kind: cluster.Fenced, Code: "FY-TEST-003", Message: "a second fleet on this database"}
	type hook = func(context.Context, cluster.RoleGuard) error
	always := func(err error) hook { return func(context.Context, cluster.RoleGuard) error { return err } }
	for name, c := range map[string]struct {
		raise, reconcile hook
		code             string
		atOnce           bool
	}{
		"outage":           {always(outage), nil, outage.Code, false},
		"untyped":          {nil, always(errTest), CodeNotActive, false},
		"fence in the way": {always(foreign), nil, foreign.Code, true},
		"database ahead":   {always(&cluster.Error{Kind: cluster.StorageFailure, Code: cluster.CodeDatabaseAhead}), nil, cluster.CodeDatabaseAhead, true},
		"database history": {always(&cluster.Error{Kind: cluster.StorageFailure, Code: cluster.CodeDatabaseHistory}), nil, cluster.CodeDatabaseHistory, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &probe{role: role, raise: c.raise, reconcile: c.reconcile}
			bubble(t, nil, func(t *testing.T, h *host) {
				epoch := h.backend.assign(role, 1)
				began := time.Now()
				h.eventually("given up", func() bool { return h.backend.view().Role(role).Vacant() })
				release, ok := h.backend.view().Release(role)
				require.True(t, ok)
				require.Equal(t, epoch, release.Epoch)
				require.Equal(t, c.code, release.Code)
				require.NotEmpty(t, release.Reason)
				require.Equal(t, c.atOnce, time.Since(began) < time.Second)
				require.Less(t, time.Since(began), 10*time.Second)
				h.gone(role)
			}, p)
		})
	}
}

// A loop that fails is started again in its epoch, after its old run and a back-off.
func TestLoopRestartsInsideItsEpoch(t *testing.T) {
	var runs atomic.Int32
	p := &probe{role: role, loop: func(ctx context.Context, _ cluster.RoleGuard) error {
		switch runs.Add(1) {
		case 1:
			return errTest
		case 2:
			panic("test panic")
		case 3:
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}}
	bubble(t, nil, func(t *testing.T, h *host) {
		granted := h.backend.assign(role, 1)
		h.eventually("four runs", func() bool { return runs.Load() == 4 })
		require.Equal(t, granted, h.active(role))
		info, ok := h.entry(treePath(role, granted) + "/busy")
		require.True(t, ok)
		require.Equal(t, 3, info.Restarts)
		require.Equal(t, errLoopReturned.Error(), info.LastFailure)
		var last time.Duration
		var busy []trace.Event
		for _, e := range h.trace.Of(role, granted) {
			if e.Detail == "busy" {
				busy = append(busy, e)
			}
		}
		require.Equal(t, []trace.Kind{trace.LoopStart, trace.LoopEnd, trace.LoopStart, trace.LoopEnd, trace.LoopStart, trace.LoopEnd, trace.LoopStart}, trace.Kinds(busy))
		for i := 1; i+1 < len(busy); i += 2 {
			wait := time.Duration(busy[i+1].Mono - busy[i].Mono)
			require.Greater(t, wait, last, "each wait is longer than the one before")
			last = wait
		}
	}, p)
}

func TestLoopBudgetGivesTheRoleUp(t *testing.T) {
	p := &probe{role: role, loop: func(context.Context, cluster.RoleGuard) error { return errTest }}
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		h.eventually("given up", func() bool { return h.backend.view().Role(role).Vacant() })
		release, _ := h.backend.view().Release(role)
		require.Equal(t, CodeBudgetSpent, release.Code)
		require.Contains(t, release.Reason, "loop busy")
		require.Contains(t, release.Reason, errTest.Error())
		h.gone(role)
	}, p)
}

// A loop that fails too slowly for the budget of its restarts ends the role by saying so.
func TestStuckLoopGivesTheRoleUp(t *testing.T) {
	p := &probe{role: role, loop: func(ctx context.Context, _ cluster.RoleGuard) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Second):
			return fmt.Errorf("wrapped: %w", Stuck(errTest))
		}
	}}
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		granted := h.active(role)
		h.eventually("given up", func() bool { return h.backend.view().Role(role).Vacant() })
		release, _ := h.backend.view().Release(role)
		require.Equal(t, granted, release.Epoch)
		require.Equal(t, CodeStuck, release.Code)
		require.Contains(t, release.Reason, "loop busy")
		require.Contains(t, release.Reason, errTest.Error())
		h.gone(role)
	}, p)
}

// Losing one role touches no other.
func TestRoleIsolation(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		h.backend.assign(fsm.ReleaseCoordinator, 1)
		lost, kept := h.active(role), h.active(fsm.ReleaseCoordinator)
		h.crash(treePath(role, lost))
		require.Greater(t, h.active(role), lost)
		h.backend.vacate(role)
		h.gone(role)
		require.Equal(t, kept, h.active(fsm.ReleaseCoordinator))
		require.Equal(t, []string{"raise", "reconcile", "loop idle"}, h.probes[fsm.ReleaseCoordinator].seen())
	}, &probe{role: role}, &probe{role: fsm.ReleaseCoordinator})
}

// A node that stops gives its roles up by a committed release, at once.
func TestStopReleasesRoles(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		epoch := h.active(role)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, h.sys.Stop(ctx))
		h.eventually("released", func() bool { return h.backend.view().Role(role).Vacant() })
		release, _ := h.backend.view().Release(role)
		require.Equal(t, CodeNodeStopping, release.Code)
		require.Equal(t, epoch, release.Epoch)
		require.Empty(t, h.sys.Tree())
		h.backend.assign(role, 1)
		h.settle(3 * time.Second)
		require.Equal(t, []string{"raise", "reconcile", "loop idle"}, h.probes[role].seen(), "a stopped system starts nothing")
	}, &probe{role: role})
}

func TestStopNamesWhatStillRuns(t *testing.T) {
	p := &probe{role: role}
	p.loop = func(context.Context, cluster.RoleGuard) error { <-p.release; return nil }
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		epoch := h.active(role)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.ErrorContains(t, h.sys.Stop(ctx), treePath(role, epoch)+"/busy")
		require.Equal(t, cluster.GuardRevoked, p.lastGuard().State())
		close(p.release)
	}, p)
}

// Loops start and stop by leadership alone, and never without an active guard.
func TestLoopsFollowLeadership(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		for range 3 {
			h.backend.assign(role, 1)
			h.active(role)
			h.backend.vacate(role)
			h.gone(role)
		}
		require.Len(t, h.probes[role].seen(), 3*3, "raise, reconcile and one loop each time")
	}, &probe{role: role})
}

func TestLoopNeedsGuard(t *testing.T) {
	p := &probe{role: role}
	p.reconcile = func(_ context.Context, g cluster.RoleGuard) error {
		g.Lost(errTest) // revoked between reconciliation and the loops
		return nil
	}
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		h.settle(time.Minute)
		require.NotContains(t, p.seen(), "loop idle")
		require.Less(t, len(h.backend.proposed()), 25, "epochs that are lost at once are taken with back-off")
		h.backend.assign(role, 2)
		h.gone(role)
	}, p)
}

func TestStartRefusesBadSpecs(t *testing.T) {
	good := (&probe{role: role}).spec()
	for name, specs := range map[string][]RoleSpec{
		"no role":       {{Raise: good.Raise, Reconcile: good.Reconcile}},
		"no raise":      {{Role: role, Reconcile: good.Reconcile}},
		"no reconcile":  {{Role: role, Raise: good.Raise}},
		"twice":         {good, good},
		"nameless loop": {{Role: role, Raise: good.Raise, Reconcile: good.Reconcile, Loops: []Loop{{Run: good.Loops[0].Run}}}},
		"loop twice":    {{Role: role, Raise: good.Raise, Reconcile: good.Reconcile, Loops: []Loop{good.Loops[0], good.Loops[0]}}},
		"path in name":  {{Role: role, Raise: good.Raise, Reconcile: good.Reconcile, Loops: []Loop{{Name: "a/b", Run: good.Loops[0].Run}}}},
	} {
		t.Run(name, func(t *testing.T) {
			backend := newScript()
			_, err := Start(Config{Backend: backend, Trees: cluster.NewService(cluster.ServiceConfig{Backend: backend}), Roles: specs, NewPlanner: func() Planner { return idle{} }})
			require.ErrorContains(t, err, "actors: ")
		})
	}
}

// A role that this node grants itself again while it stops gets no tree, and nobody waits for one.
func TestGrantedAgainWhileStopping(t *testing.T) {
	p := &probe{role: role}
	p.loop = func(ctx context.Context, _ cluster.RoleGuard) error { <-p.release; return ctx.Err() }
	bubble(t, planWith(grantHere), func(t *testing.T, h *host) {
		h.backend.lead()
		h.eventually("active", func() bool { return len(p.epochs()) == 1 })
		first := h.backend.view().Role(role).Epoch
		stopped := make(chan error, 1)
		go func() { stopped <- h.sys.Stop(t.Context()) }()
		h.eventually("granted again", func() bool { return h.backend.view().Role(role).Epoch > first })
		h.settle(2 * time.Second)
		close(p.release)
		require.NoError(t, <-stopped)
		require.Len(t, p.seen(), 4, "one tree: raise, reconcile, two loops")
	}, p)
}
