// The Service under rapid: two processes of one fleet, whose views come late, out of order or not at all.

package cluster_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// TestGuardLifecycle drives both processes with everything that can happen to a
// role and looks at every guard after each step.
func TestGuardLifecycle(t *testing.T) {
	done := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(noDeadline{t}, func(t *rapid.T) { guardMachine(t, done) })
	})
	t.Log(done)
	for _, what := range []string{"minted", "refused", "active in the end", "restarts", "stale views"} {
		require.Positive(t, done[what], "%v", done)
	}
}

// noDeadline hides what may not be asked for in a bubble.
type noDeadline struct{ rapid.TB }

func guardMachine(t *rapid.T, done map[string]int) {
	y := newYard(t)
	live := []*process{y.start(1, fsm.IncarnationID{1}), y.start(2, fsm.IncarnationID{2})}
	all := slices.Clone(live)
	incarnations := byte(10)
	t.Cleanup(func() {
		for _, p := range all {
			if !p.ended {
				p.kill()
			}
		}
	})
	one := func(t *rapid.T) *process { return live[rapid.IntRange(0, 1).Draw(t, "process")] }
	role := func(t *rapid.T) fsm.Role { return rapid.SampledFrom(fsm.Roles()[:2]).Draw(t, "role") }
	give := func(p *process) {
		p.locked(func() { p.newest, p.shown = y.last(), y.last() })
		p.hints.Notify()
	}
	assign := func(t *rapid.T, to *process) {
		v, r := y.newest(), role(t)
		y.must(t, fsm.AssignRole{Leader: v.LeaderEpoch, Role: r, ExpectedEpoch: v.Role(r).Epoch, Owner: to.self.Node, Incarnation: to.self.Incarnation})
	}
	past := func(p *process, view int) {
		done["stale views"]++
		p.locked(func() { p.shown = view })
		p.hints.Notify()
		synctest.Wait()
		p.look(t)
		p.locked(func() { p.shown = p.newest })
	}
	t.Repeat(map[string]func(*rapid.T){
		"assign": func(t *rapid.T) { assign(t, one(t)) },
		"assign, and the owner hears of it": func(t *rapid.T) {
			p := one(t)
			assign(t, p)
			p.locked(func() { p.cut = time.Time{} })
			give(p)
		},
		"vacate": func(t *rapid.T) {
			v := y.newest()
			g := v.Role(role(t))
			if g.Vacant() {
				return
			}
			y.must(t, fsm.ReleaseRole{Leader: v.LeaderEpoch, Role: g.Role, ExpectedEpoch: g.Epoch, Node: g.Owner, Incarnation: g.Incarnation, Code: "FY-TEST-001", Reason: "moved"})
		},
		"another leadership": func(t *rapid.T) { y.elect(t) },
		"a view comes":       func(t *rapid.T) { give(one(t)) },
		"a view of the past comes": func(t *rapid.T) {
			p := one(t)
			if p.newest < 1 {
				return
			}
			past(p, rapid.IntRange(0, p.newest).Draw(t, "which"))
		},
		"a grant that is over comes late": func(t *rapid.T) {
			p := one(t)
			assign(t, p)
			over := y.last()
			assign(t, live[rapid.IntRange(0, 1).Draw(t, "next")])
			y.elect(t)
			give(p)
			synctest.Wait()
			past(p, over)
		},
		"a view comes, its hint does not": func(t *rapid.T) {
			p := one(t)
			p.locked(func() { p.newest, p.shown = y.last(), y.last() })
			<-time.After(cluster.ConfirmationBound + time.Millisecond)
		},
		"cut": func(t *rapid.T) {
			p := one(t)
			p.locked(func() {
				if p.cut.IsZero() {
					p.cut = time.Now()
				}
			})
		},
		"heal": func(t *rapid.T) {
			p := one(t)
			p.locked(func() { p.cut = time.Time{} })
		},
		"time": func(t *rapid.T) {
			<-time.After(time.Duration(rapid.IntRange(1, 1500).Draw(t, "ms")) * time.Millisecond)
		},
		"the next proposal fares badly": func(t *rapid.T) {
			p, f := one(t), fate(rapid.IntRange(1, int(fates)-1).Draw(t, "fate"))
			p.locked(func() { p.fate = f })
		},
		"a guard sees the fence or loses an answer": func(t *rapid.T) {
			p := one(t)
			if len(p.guards) == 0 {
				return
			}
			why := []error{cluster.ErrFenced, unknown}[rapid.IntRange(0, 1).Draw(t, "why")]
			p.guards[rapid.IntRange(0, len(p.guards)-1).Draw(t, "guard")].Lost(why)
		},
		"a tree gives up": func(t *rapid.T) {
			p := one(t)
			if len(p.guards) == 0 {
				return
			}
			g := p.guards[rapid.IntRange(0, len(p.guards)-1).Draw(t, "guard")]
			p.service.Report(g.Role(), g.Epoch(), cluster.TreeFailed, "FY-TEST-002", "drawn")
		},
		"loops end late": func(t *rapid.T) {
			p := one(t)
			p.trees.stick()
			give(p)
			<-time.After(time.Duration(rapid.IntRange(1, 9).Draw(t, "seconds")) * time.Second)
			p.trees.release()
		},
		"kill and start anew": func(t *rapid.T) {
			i := rapid.IntRange(0, 1).Draw(t, "which")
			old := live[i]
			old.kill()
			old.look(t)
			incarnations++
			inc := fsm.IncarnationID{incarnations}
			y.must(t, fsm.UpdateMember{Node: old.self.Node, ExpectedIncarnation: old.self.Incarnation, Incarnation: inc})
			live[i] = y.start(old.self.Node[0], inc)
			all = append(all, live[i])
			done["restarts"]++
		},
		"": func(t *rapid.T) {
			synctest.Wait()
			for _, p := range live {
				p.look(t)
			}
		},
	})

	// Healed, with every view in time: each role that the state gives to a process is active there.
	for range 200 {
		for _, p := range live {
			p.locked(func() { p.cut, p.fate = time.Time{}, committed })
			give(p)
		}
		<-time.After(100 * time.Millisecond)
		synctest.Wait()
	}
	for _, p := range live {
		p.look(t)
		for _, r := range fsm.Roles() {
			if g := y.newest().Role(r); g.HeldBy(p.self.Node, p.self.Incarnation) {
				require.Contains(t, p.service.Status(), cluster.RoleStatus{Role: r, Epoch: g.Epoch, State: cluster.GuardActive})
				done["active in the end"]++
			}
		}
	}
	for _, p := range live {
		require.NoError(t, p.close())
		p.look(t)
	}
	for _, r := range fsm.Roles() {
		require.True(t, y.newest().Role(r).Vacant(), "%s was not released", r)
	}
	for _, p := range all {
		done["minted"] += len(p.guards)
		done["refused"] += p.refused
	}
}
