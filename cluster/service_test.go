// The Service against a real local engine, in virtual time: stop order, spent epochs, guards cut off.

package cluster_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
)

var unknown = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-TEST-003", Message: "57P01", OutcomeUnknown: true, Err: errLost}

// TestStopOrderForEveryCause: inactive → cancel → invalidate, then the tree's
// end, whatever the reason (§294), and each spent epoch ends in one command.
func TestStopOrderForEveryCause(t *testing.T) {
	const (
		nothing = iota
		bump
		release
	)
	for name, tc := range map[string]struct {
		revoke func(r *rig, g cluster.RoleGuard)
		cause  string
		owed   int
		code   string // of the release
		tells  *cluster.Error
	}{
		"vacated":                {func(r *rig, _ cluster.RoleGuard) { r.vacate(scheduler) }, "moved", nothing, "", cluster.ErrNotOwner},
		"assigned anew":          {func(r *rig, _ cluster.RoleGuard) { r.assign(scheduler) }, "moved", nothing, "", cluster.ErrNotOwner},
		"recovered":              {func(r *rig, _ cluster.RoleGuard) { r.engine.generation.Add(1) }, "regenerated", bump, "", cluster.ErrFenced},
		"FENCED out of nowhere":  {func(_ *rig, g cluster.RoleGuard) { g.Lost(cluster.ErrFenced) }, "fenced", bump, "", cluster.ErrFenced},
		"outcome unknown":        {func(_ *rig, g cluster.RoleGuard) { g.Lost(unknown) }, "unknown", bump, "", unknown},
		"link cut for a second":  {func(r *rig, _ cluster.RoleGuard) { r.cutFor(time.Second) }, "unconfirmed", bump, "", cluster.ErrUnconfirmed},
		"starved, then checking": {starved, "unconfirmed", bump, "", cluster.ErrUnconfirmed},
		"gave up": {func(r *rig, g cluster.RoleGuard) {
			r.service.Report(scheduler, g.Epoch(), cluster.TreeFailed, "FY-TEST-004", "a poison row")
		}, "gave_up", release, "FY-TEST-004", &cluster.Error{Code: "FY-TEST-004"}},
		"closed": {func(r *rig, _ cluster.RoleGuard) {
			require.NoError(r, r.service.Close(r.Context()))
		}, "declined", release, "FY-ROLE-005", cluster.ErrClosing},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				g := r.active(scheduler)
				tc.revoke(r, g)
				r.eventually(func() bool { return g.State() == cluster.GuardRevoked })
				require.ErrorIs(t, context.Cause(g.Context()), tc.tells)
				require.ErrorIs(t, g.Check(), cluster.ErrFenced)

				owed := map[int]trace.Kind{bump: trace.Bump, release: trace.Release}
				want := []trace.Kind{trace.Grant, trace.Fenced, trace.Active, trace.Inactive, trace.Cancel, trace.Invalidate, trace.Poison, trace.LoopEnd, trace.Terminated}
				r.eventually(func() bool {
					done := slices.Contains(trace.Kinds(r.rec.Of(scheduler, g.Epoch())), trace.Terminated)
					return done && (tc.owed == nothing || len(r.engine.committed()) == 1)
				})
				events := r.rec.Of(scheduler, g.Epoch())
				got := slices.DeleteFunc(trace.Kinds(events), func(k trace.Kind) bool {
					return k == trace.Spent || k == trace.Bump || k == trace.Release || k == trace.CheckRefused
				})
				require.Equal(t, want, got)
				for _, e := range events {
					if slices.Contains([]trace.Kind{trace.Inactive, trace.Cancel, trace.Invalidate}, e.Kind) {
						require.Equal(t, tc.cause, e.Detail)
					}
				}
				require.Equal(t, tc.owed != nothing, slices.Contains(trace.Kinds(events), trace.Spent))

				// A minute later exactly one command was committed, and the role stands as it should.
				<-time.After(time.Minute)
				now := r.engine.Backend.View().Role(scheduler)
				if tc.owed == nothing {
					require.Empty(t, r.engine.committed())
				} else {
					require.Len(t, r.engine.committed(), 1)
					require.Contains(t, trace.Kinds(r.rec.Of(scheduler, g.Epoch())), owed[tc.owed])
				}
				switch {
				case tc.owed == bump:
					require.Equal(t, cluster.RoleStatus{Role: scheduler, Epoch: g.Epoch() + 1, State: cluster.GuardActive}, r.stands(scheduler))
				case tc.owed == release:
					require.True(t, now.Vacant())
					why, _ := r.engine.Backend.View().Release(scheduler)
					require.Equal(t, tc.code, why.Code)
				}
				require.False(t, r.trees.doubled.Load())
				r.finish()
			})
		})
	}
}

// cutFor cuts the link to the leader and heals it.
func (r *rig) cutFor(d time.Duration) {
	r.engine.frozen = time.Now()
	r.engine.cut.Store(true)
	<-time.After(d)
	r.engine.cut.Store(false)
}

// starved: the clock jumps over the bound and the guard notices before any timer.
func starved(r *rig, g cluster.RoleGuard) {
	r.engine.frozen = time.Now()
	r.engine.cut.Store(true)
	r.engine.skew.Store(int64(10 * time.Second))
	require.ErrorIs(r, g.Check(), cluster.ErrUnconfirmed)
	require.Equal(r, cluster.GuardRevoked, g.State(), "revoked before Check returned")
	kinds := trace.Kinds(r.rec.Of(scheduler, g.Epoch()))
	require.Less(r, slices.Index(kinds, trace.CheckRefused), slices.Index(kinds, trace.Inactive))
	_ = g.Check()
	require.Equal(r, 1, count(trace.Kinds(r.rec.Of(scheduler, g.Epoch())), trace.CheckRefused), "refusals are traced once")
	r.engine.cut.Store(false)
}

func count(kinds []trace.Kind, k trace.Kind) (n int) {
	for _, other := range kinds {
		if other == k {
			n++
		}
	}
	return n
}

// TestLeaderLifecycleUnconfirmedIsRevokedOnTime: the timer needs no call of Check.
func TestLeaderLifecycleUnconfirmedIsRevokedOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		g := r.active(scheduler)
		start := time.Now()
		r.engine.frozen = start
		r.engine.cut.Store(true)
		<-g.Context().Done()
		late := time.Since(start) - cluster.ConfirmationBound
		require.Positive(t, late)
		require.LessOrEqual(t, late, 5*time.Millisecond)
		r.engine.cut.Store(false)
		r.finish()
	})
}

// TestUnconfirmedMintsNothing: a grant seen without a confirmation waits.
func TestUnconfirmedMintsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cut()
		e := r.assign(scheduler)
		<-time.After(5 * time.Second)
		require.Zero(t, r.service.Desired(scheduler).Epoch)
		require.Equal(t, cluster.RoleStatus{Role: scheduler, Epoch: e, State: cluster.GuardNone}, r.stands(scheduler))
		_, err := r.service.AcquireRole(t.Context(), scheduler)
		require.ErrorIs(t, err, cluster.ErrNotOwner)
		r.engine.cut.Store(false)
		r.within(50*time.Millisecond, func() bool { return r.stands(scheduler).State == cluster.GuardActive })
		require.Equal(t, e, r.stands(scheduler).Epoch, "the epoch was not used, so it is not spent")
		r.finish()
	})
}

func (r *rig) cut() {
	r.engine.frozen = time.Now().Add(-time.Hour)
	r.engine.cut.Store(true)
	<-time.After(2 * cluster.ConfirmationBound)
}

// TestUnknownOutcomeEndsInOneCommand: lost before, lost after, and refused answers.
func TestUnknownOutcomeEndsInOneCommand(t *testing.T) {
	timeout := &cluster.Error{Kind: cluster.TransportFailure, Code: "FY-TEST-005", Message: "no answer", OutcomeUnknown: true}
	for name, disturb := range map[string]func(n int, next func() (cluster.Commit, error)) (cluster.Commit, error){
		"never sent": func(n int, next func() (cluster.Commit, error)) (cluster.Commit, error) {
			if n <= 4 {
				return cluster.Commit{}, cluster.ErrNotLeader
			}
			return next()
		},
		"answer lost": func(n int, next func() (cluster.Commit, error)) (cluster.Commit, error) {
			commit, err := next()
			if n <= 4 {
				return cluster.Commit{}, timeout
			}
			return commit, err
		},
		"foreign error": func(n int, next func() (cluster.Commit, error)) (cluster.Commit, error) {
			if n == 1 {
				return cluster.Commit{}, errors.New("no coordination error")
			}
			return next()
		},
		"refused for a while": func(n int, next func() (cluster.Commit, error)) (cluster.Commit, error) {
			if n <= 3 {
				return cluster.Commit{}, cluster.ErrFenced
			}
			return next()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(e *engine, _ *cluster.ServiceConfig) { e.disturb = disturb })
				g := r.active(scheduler)
				g.Lost(unknown)
				r.eventually(func() bool {
					return r.stands(scheduler) == cluster.RoleStatus{Role: scheduler, Epoch: g.Epoch() + 1, State: cluster.GuardActive}
				})
				<-time.After(time.Minute)
				require.Len(t, r.engine.committed(), 1)
				require.IsType(t, fsm.BumpEpoch{}, r.engine.committed()[0])
				require.Equal(t, g.Epoch()+1, r.stands(scheduler).Epoch)
				r.finish()
			})
		})
	}
}

// TestLaggingViewIsWaitedFor: the command is committed, but this node learns it late.
func TestLaggingViewIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		g := r.active(scheduler)
		old := r.engine.View()
		r.engine.lagging.Store(&old)
		g.Lost(unknown)
		<-time.After(3 * time.Second)
		require.Equal(t, cluster.RoleStatus{Role: scheduler, Epoch: g.Epoch(), State: cluster.GuardRevoked}, r.stands(scheduler))
		r.engine.lagging.Store(nil)
		r.eventually(func() bool { return r.stands(scheduler).State == cluster.GuardActive })
		require.Equal(t, g.Epoch()+1, r.stands(scheduler).Epoch)
		require.Len(t, r.engine.committed(), 1)
		require.Equal(t, 1, count(trace.Kinds(r.rec.Of(scheduler, g.Epoch())), trace.Bump))
		r.finish()
	})
}

// TestRefusedRenewalIsReleased: a grant from before the current leadership is
// not renewed; when nobody assigns it anew, the role is released, not orphaned.
func TestRefusedRenewalIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		refuse := func(n int, next func() (cluster.Commit, error)) (cluster.Commit, error) {
			if n <= 6 {
				return cluster.Commit{}, cluster.ErrFenced
			}
			return next()
		}
		r.engine.mu.Lock()
		r.engine.disturb = refuse
		r.engine.mu.Unlock()
		g := r.active(scheduler)
		start := time.Now()
		g.Lost(unknown)
		r.eventually(func() bool { return r.engine.Backend.View().Role(scheduler).Vacant() })
		require.Greater(t, time.Since(start), time.Second, "a refusal is not believed at once")
		why, _ := r.engine.Backend.View().Release(scheduler)
		require.Equal(t, cluster.ErrNotRenewed.Code, why.Code)
		require.Len(t, r.engine.committed(), 1)
		r.finish()
	})
}

// TestFenceThatCannotBeRaisedIsNotClimbedOver: FENCED while raising gives the role up.
func TestFenceThatCannotBeRaisedIsNotClimbedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.trees.raise = func(g cluster.RoleGuard) error {
			g.Lost(cluster.ErrFenced)
			return cluster.ErrFenced
		}
		e := r.assign(scheduler)
		r.eventually(func() bool { return r.engine.Backend.View().Role(scheduler).Vacant() })
		why, _ := r.engine.Backend.View().Release(scheduler)
		require.Equal(t, cluster.ErrFenced.Code, why.Code)
		require.Equal(t, e, why.Epoch)
		r.finish()
	})
}

// TestWatchDroppedStillConverges: with every hint lost the view is still followed (§292).
func TestWatchDroppedStillConverges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(e *engine, _ *cluster.ServiceConfig) { e.deaf = true })
		for range 5 {
			e := r.assign(scheduler)
			r.within(510*time.Millisecond, func() bool { return r.stands(scheduler).Epoch == e })
			r.vacate(scheduler)
			r.within(510*time.Millisecond, func() bool { return r.stands(scheduler) == cluster.RoleStatus{} })
		}
		r.finish()
	})
}

// TestRoleThatIsNotRunHereIsReleased: the leader learns it at once, not after a timeout.
func TestRoleThatIsNotRunHereIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(_ *engine, cfg *cluster.ServiceConfig) { cfg.Roles = []fsm.Role{scheduler} })
		r.active(scheduler)
		e := r.assign(fsm.DeploymentCoordinator)
		r.eventually(func() bool { return r.engine.Backend.View().Role(fsm.DeploymentCoordinator).Vacant() })
		why, _ := r.engine.Backend.View().Release(fsm.DeploymentCoordinator)
		require.Equal(t, cluster.ErrNotRunnable.Code, why.Code)
		require.Empty(t, count(trace.Kinds(r.rec.Of(fsm.DeploymentCoordinator, e)), trace.Grant))
		r.finish()
	})
}
