// Every kind of actor, killed by panic at random messages while roles come and go.

package actorchaos

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/record"
)

// suite is the name under which kills are counted.
const suite = "actors"

// victim is a kind of actor.
type victim struct {
	name   string
	prefix string // of its path
	depth  int    // parts of its path
	// spacing keeps a kind whose spent budget ends the process within the budget.
	spacing time.Duration
	kill    func(*node, fsm.Role) bool
}

// victims are all kinds but the root, whose death is another test's.
func victims() []victim {
	at := func(path func(*node, fsm.Role) string) func(*node, fsm.Role) bool {
		return func(n *node, role fsm.Role) bool { return n.system.Crash(path(n, role)) == nil }
	}
	fixed := func(path string) func(*node, fsm.Role) bool {
		return at(func(*node, fsm.Role) string { return path })
	}
	const withinBudget = 3400 * time.Millisecond // at most 3 in any 10 s
	return []victim{
		{"coordination supervisor", "coordination", 1, withinBudget, fixed("coordination")},
		{"watcher", "watcher", 1, withinBudget, fixed("watcher")},
		{"leader supervisor", "leader", 1, withinBudget, fixed("leader")},
		{"coordination leader", "leader/", 2, 0, at(func(n *node, _ fsm.Role) string { return n.leaderPath() })},
		{"role supervisor", "roles/", 2, 0, at(func(_ *node, role fsm.Role) string { return "roles/" + role.String() })},
		{"role actor", "roles/", 3, 0, at(func(n *node, role fsm.Role) string {
			return fmt.Sprintf("roles/%s/%d", role, n.grant(role).Epoch)
		})},
		{"loop", "roles/", 4, 0, func(n *node, role fsm.Role) bool { return n.roles[role].breakLoop() }},
	}
}

func (n *node) leaderPath() string {
	for _, i := range n.system.Tree() {
		if strings.HasPrefix(i.Path, "leader/") {
			return i.Path
		}
	}
	return "leader/none"
}

// disturb makes messages flow: something happens to a role that has nothing to do with the victim.
func (n *node) disturb(role fsm.Role) {
	g := n.roles[role].held()
	switch n.rng.IntN(6) {
	case 0:
		n.vacate(role)
	case 1:
		g.Lost(cluster.ErrFenced)
	case 2:
		g.Lost(errLostReply)
	case 3:
		n.backend.lose()
		n.settle(600 * time.Millisecond)
		n.backend.regain()
	case 4:
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = n.system.Do(ctx, role, func(context.Context, cluster.RoleGuard) error { panic("the work breaks") })
	}
}

var errLostReply = &cluster.Error{Kind: cluster.TransportFailure, Code: "FY-TEST-002", Message: "the reply is lost", OutcomeUnknown: true}

// Whatever is killed and however often, all roles work again by themselves under
// higher epochs, no two epochs' loops ever overlap, and the process lives on.
func TestKillEveryKind(t *testing.T) {
	counts := record.Begin(t, suite)
	rounds, seed := chaosRounds(t), chaosSeed(t)
	for _, v := range victims() {
		t.Run(v.name, func(t *testing.T) {
			killed := 0
			inBubble(t, seed, actors.Budget{}, func(t *testing.T, n *node) {
				n.allActive()
				for tries := 0; n.panics.count(v.prefix, v.depth) < rounds; tries++ {
					require.Less(t, tries, 200*rounds, "the victim could not be killed often enough")
					role := fsm.Roles()[n.rng.IntN(len(fsm.Roles()))]
					n.random(400 * time.Millisecond)
					n.disturb(fsm.Roles()[n.rng.IntN(len(fsm.Roles()))])
					n.random(20 * time.Millisecond)
					if v.kill(n, role) {
						n.settle(v.spacing)
					}
				}
				n.allActive()
				require.Empty(t, n.exits.all(), "%v", n.exits.why)
				killed = n.panics.count(v.prefix, v.depth)
			})
			counts.Add(v.name+" killed", killed) // all that inBubble checks has been checked
		})
	}
}

// The root's death ends the process, once, so that another node can own what
// this one can no longer control.
func TestRootDies(t *testing.T) {
	counts := record.Begin(t, suite)
	rounds, seed := chaosRounds(t), chaosSeed(t)
	for round := range rounds {
		inBubble(t, seed+uint64(round), actors.Budget{}, func(t *testing.T, n *node) {
			n.allActive()
			n.random(time.Second)
			n.disturb(fsm.SchedulerLeader)
			require.NoError(t, n.system.Crash("root"))
			n.random(time.Second)
			require.Equal(t, []int{actors.ExitRootDied}, n.exits.all())
			require.Equal(t, 1, n.panics.count("root", 1))
			_ = n.system.Crash("root") // a process that is told to end may take a moment
			n.random(time.Second)
			require.Equal(t, []int{actors.ExitRootDied}, n.exits.all(), "the process is told to end once")
		})
	}
	counts.Add("root killed", rounds)
}

// Without a watcher, a leader supervisor or their supervisor no role can be
// controlled: beyond the budget the process ends, once.
func TestSpentBudgetOfASupervisorEndsTheProcess(t *testing.T) {
	seed := chaosSeed(t)
	for _, path := range []string{"coordination", "watcher", "leader"} {
		t.Run(path, func(t *testing.T) {
			inBubble(t, seed, actors.Budget{}, func(t *testing.T, n *node) {
				n.allActive()
				for tries := 0; len(n.exits.all()) == 0; tries++ {
					require.Less(t, tries, 1000)
					_ = n.system.Crash(path) // it may be between two lives
					n.random(30 * time.Millisecond)
				}
				n.random(time.Second)
				require.Equal(t, []int{actors.ExitRootDied}, n.exits.all())
				require.Contains(t, n.exits.why[0], "more than 3 times in 10s")
			})
		})
	}
}

// Beyond its budget a role is given up, with the reason where operators look; the
// other roles go on, and after a while it works again.
func TestRoleBeyondItsBudgetIsGivenUp(t *testing.T) {
	seed := chaosSeed(t)
	budgets := []actors.Budget{{}, {Restarts: 1, Window: 30 * time.Second}}
	for _, v := range victims()[4:] {
		for _, budget := range budgets {
			t.Run(fmt.Sprintf("%s %d in %s", v.name, budget.Restarts, budget.Window), func(t *testing.T) {
				inBubble(t, seed, budget, func(t *testing.T, n *node) { n.exhaust(v, budget) })
			})
		}
	}
}

func (n *node) exhaust(v victim, budget actors.Budget) {
	n.t.Helper()
	allowed := budget.Restarts
	if allowed == 0 {
		allowed = 3
	}
	role := fsm.SchedulerLeader
	n.allActive()
	others := map[fsm.Role]fsm.Epoch{}
	for _, r := range fsm.Roles()[1:] {
		others[r] = n.grant(r).Epoch
	}
	for range allowed {
		n.eventually("killed", func() bool { return v.kill(n, role) })
		n.settle(50 * time.Millisecond)
		n.active(role)
		_, released := n.backend.View().Release(role)
		require.False(n.t, released, "within the budget nothing is given up")
	}
	n.planner.hold(true)
	n.eventually("killed", func() bool { return v.kill(n, role) })
	n.eventually("given up", func() bool { return n.grant(role).Vacant() })
	release, _ := n.backend.View().Release(role)
	require.Equal(n.t, actors.CodeBudgetSpent, release.Code)
	require.Contains(n.t, release.Reason, fmt.Sprintf("more than %d times", allowed))
	row := n.row(role)
	require.Contains(n.t, row.Why, actors.CodeBudgetSpent)
	require.Contains(n.t, row.Why, release.Reason)
	for r, epoch := range others {
		require.Equal(n.t, epoch, n.active(r), "%s was touched", r)
	}
	n.planner.hold(false)
	n.active(role)
	require.Empty(n.t, n.exits.all())
}
