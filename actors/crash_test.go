// Panics: in every phase of every actor, at random messages, within the budget and beyond it.

package actors

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

func TestCrashRestartFreshGuard(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		epoch := h.active(role)
		old := h.probes[role].lastGuard()
		h.crash(treePath(role, epoch))
		next := h.active(role)
		require.Greater(t, next, epoch)
		require.ErrorIs(t, old.Check(), cluster.ErrFenced)
		require.Equal(t, []fsm.Command{
			fsm.BumpEpoch{Role: role, ExpectedEpoch: epoch, Node: member(1).Node, Incarnation: member(1).Incarnation},
		}, h.backend.proposed(), "exactly one command ends the spent epoch")
		require.False(t, h.probes[role].overlapped())
		info, _ := h.entry(rolePath(role))
		require.Equal(t, 1, info.Restarts)
		require.Equal(t, errCrashRequested.Error(), info.LastFailure)
	}, &probe{role: role})
}

// Beyond the budget the role is given up with its reason; a later grant works again.
func TestRestartIntensityEscalates(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		for range 4 {
			h.crash(treePath(role, h.active(role)))
			h.settle(100 * time.Millisecond)
		}
		h.eventually("given up", func() bool { return h.backend.view().Role(role).Vacant() })
		release, _ := h.backend.view().Release(role)
		require.Equal(t, CodeBudgetSpent, release.Code)
		require.Contains(t, release.Reason, errCrashRequested.Error())
		h.gone(role)
		h.settle(10 * time.Second)
		h.backend.assign(role, 1)
		h.active(role)
		require.Empty(t, h.exits)
	}, &probe{role: role})
}

// A panic in any step of becoming active costs an epoch, never the node.
func TestPanicWhileBecomingActive(t *testing.T) {
	for _, step := range []string{"raise", "reconcile"} {
		t.Run(step, func(t *testing.T) {
			var once atomic.Bool
			hook := func(context.Context, cluster.RoleGuard) error {
				if once.CompareAndSwap(false, true) {
					panic("test panic")
				}
				return nil
			}
			p := &probe{role: role}
			if step == "raise" {
				p.raise = hook
			} else {
				p.reconcile = hook
			}
			bubble(t, nil, func(t *testing.T, h *host) {
				epoch := h.backend.assign(role, 1)
				require.Greater(t, h.active(role), epoch)
			}, p)
		})
	}
}

// The engine would revive an actor that panics in Stopping, and hang the parent
// of one that panics in Stopped.
func TestActorLifecyclePanicWhileStopping(t *testing.T) {
	for name, meanwhile := range map[string]string{
		"alone": "", "while its supervisor restarts": rolePath(role), "while everything restarts": pathCoordination,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, h *host) {
				h.backend.assign(role, 1)
				rec, ok := h.sys.registry.get(treePath(role, h.active(role)))
				require.True(t, ok)
				stopping := rec.onStopping
				rec.onStopping = func() {
					stopping()
					rec.crash.Store(2) // in Stopping and in Stopped
				}
				if meanwhile != "" {
					h.crash(meanwhile)
				}
				h.backend.assign(role, 2)
				h.gone(role)
				require.Zero(t, rec.crash.Load(), "both panics happened")
				h.backend.assign(role, 1)
				h.active(role)
				require.False(t, h.probes[role].overlapped())
			}, &probe{role: role})
		})
	}
}

func TestWatcherReload(t *testing.T) {
	lost := func(c *Config) { c.Trees = deaf{c.Trees} }
	bubble(t, lost, func(t *testing.T, h *host) {
		h.settle(time.Second)
		began := time.Now()
		h.backend.assign(role, 1)
		h.active(role)
		require.LessOrEqual(t, time.Since(began), 1100*time.Millisecond, "a lost hint only delays")
	}, &probe{role: role})
}

// deaf is a service whose hints are all lost.
type deaf struct{ cluster.Trees }

func (deaf) Changes() (<-chan struct{}, func()) { return make(chan struct{}), func() {} }

// The service counts on hearing of every epoch it told of, also of those that passed too fast.
func TestNoOverlap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		moves := rapid.SliceOfN(rapid.SampledFrom([]string{"here", "there", "fenced", "cut", "pause"}), 1, 25).Draw(rt, "moves")
		bubble(t, nil, func(t *testing.T, h *host) {
			for _, m := range moves {
				switch m {
				case "here":
					h.backend.assign(role, 1)
				case "there":
					h.backend.assign(role, 2)
				case "fenced":
					h.probes[role].lastGuard().Lost(errTest)
				case "cut":
					h.backend.cut()
					h.settle(600 * time.Millisecond)
					h.backend.heal()
				case "pause":
					h.settle(7 * time.Millisecond)
				}
			}
			h.backend.assign(role, 2)
			h.gone(role)
			h.backend.assign(role, 1)
			h.active(role)
			require.False(t, h.probes[role].overlapped(), "%v", moves)
			require.Empty(t, h.exits)
		}, &probe{role: role})
	})
}

func TestRootDeathExits(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		h.crash(pathRoot)
		h.eventually("exit", func() bool { return len(h.exits) == 1 })
		require.Contains(t, <-h.exits, errCrashRequested.Error())
		h.crash(pathRoot)
		h.settle(time.Second)
		require.Empty(t, h.exits, "the process is told to end once")
	})
}

// Failures go up: a watcher beyond its budget takes its supervisor with it, and that one the process.
func TestActorLifecycleEscalationEndsInExit(t *testing.T) {
	for _, path := range []string{pathWatcher, pathLeader, pathCoordination} {
		t.Run(path, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, h *host) {
				var code int
				h.sys.cfg.Exit = func(c int, reason string) { code = c; h.exits <- reason }
				for n := 0; len(h.exits) == 0 && n < 100; n++ {
					_ = h.sys.Crash(path) // it may be between two lives
					h.settle(20 * time.Millisecond)
				}
				require.Equal(t, ExitRootDied, code)
				require.Contains(t, <-h.exits, "more than 3 times")
			})
		})
	}
}

// A role supervisor beyond its budget costs its role a pause, and no other role anything.
func TestRoleSupervisorBeyondBudget(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		h.backend.assign(fsm.ReleaseCoordinator, 1)
		kept := h.active(fsm.ReleaseCoordinator)
		for range 4 {
			h.active(role)
			h.crash(rolePath(role))
			h.settle(100 * time.Millisecond)
		}
		h.eventually("given up", func() bool { return h.backend.view().Role(role).Vacant() })
		h.gone(role)
		h.settle(11 * time.Second)
		h.backend.assign(role, 1)
		h.active(role)
		require.Equal(t, kept, h.active(fsm.ReleaseCoordinator))
		require.Empty(t, h.exits)
	}, &probe{role: role}, &probe{role: fsm.ReleaseCoordinator})
}

// Every kind of actor is killed at random messages; the node converges and epochs rise strictly.
func TestChaosKillActors(t *testing.T) {
	rounds := 10
	if s := os.Getenv("FORGEYARD_CHAOS_ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		rounds = n
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	victims := map[string]func(*host) string{
		"role actor":      func(h *host) string { return treePath(role, h.backend.view().Role(role).Epoch) },
		"role supervisor": func(*host) string { return rolePath(role) },
		"watcher":         func(*host) string { return pathWatcher },
		"leader": func(h *host) string {
			if l := h.sys.lead.current(); l != nil {
				return l.path()
			}
			return pathLeader
		},
		"leader supervisor":       func(*host) string { return pathLeader },
		"coordination supervisor": func(*host) string { return pathCoordination },
	}
	generous := func(c *Config) {
		c.Budget = Budget{Restarts: 1000, Window: 10 * time.Second}
		c.NewPlanner = NewPlacement(c.Backend.Self().Node, time.Now).Begin
	}
	for name, path := range victims {
		t.Run(name, func(t *testing.T) {
			bubble(t, generous, func(t *testing.T, h *host) {
				h.backend.SetReporter(func() cluster.HealthReport {
					return cluster.HealthReport{
						Node: member(1).Node, Incarnation: member(1).Incarnation, PGWritable: true, PGWritableFor: time.Hour,
						RunnableRoles: []fsm.Role{role}, AppliedIndex: h.backend.view().Index, Roles: h.service.Status(),
					}
				})
				h.backend.lead()
				last := h.active(role)
				for range rounds {
					h.settle(time.Duration(rng.IntN(30)) * time.Millisecond)
					before := h.active(role)
					require.GreaterOrEqual(t, before, last)
					_ = h.sys.Crash(path(h)) // at whatever message comes next
					h.settle(time.Duration(rng.IntN(300)) * time.Millisecond)
					last = before
				}
				after := h.active(role)
				if name == "role actor" || name == "role supervisor" || name == "coordination supervisor" {
					require.GreaterOrEqual(t, after, last+1, "each crash spent an epoch")
				}
				require.False(t, h.probes[role].overlapped())
				require.Empty(t, h.exits)
				var loops int
				for _, i := range h.sys.Tree() {
					if i.Kind == KindLoop {
						loops++
					}
				}
				require.Equal(t, 1, loops)
			}, &probe{role: role})
		})
	}
}
