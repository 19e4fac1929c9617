//go:build chaos

// The one who makes the faults of a storm, undoes each, and counts those that really happened.

package chaos

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// The kinds of fault of TestChaosJobs.
const (
	killDaemon   = "a daemon killed"
	killLeader   = "the leader killed"
	pauseDaemon  = "a daemon paused"
	loseQuorum   = "two daemons killed"
	killPostgres = "PostgreSQL killed"
	killAgent    = "an agent killed"
	pauseAgent   = "an agent paused"
	outlast      = "an agent paused past its lease"
)

func daemonKinds() []Kind {
	return []Kind{
		{killDaemon, 3, time.Second, 4 * time.Second},
		{killLeader, 3, time.Second, 4 * time.Second},
		{pauseDaemon, 1, 2 * time.Second, 6 * time.Second},
		{loseQuorum, 1, 5 * time.Second, 8 * time.Second},
		{killPostgres, 2, time.Second, 5 * time.Second},
	}
}

func agentKinds() []Kind {
	return []Kind{{killAgent, 2, 100 * time.Millisecond, 3 * time.Second}, {pauseAgent, 1, 2 * time.Second, 8 * time.Second}}
}

// outlasting is longer than a lease.
func outlasting() []Kind { return []Kind{{outlast, 1, 70 * time.Second, 75 * time.Second}} }

// errTooLate: the storm ended before a fault could hit anything. It does not count.
var errTooLate = errors.New("the storm is over")

// healing bounds the undoing of one fault.
const healing = 60 * time.Second

// span is a time without a quorum.
type span struct{ from, to time.Time }

// nemesis breaks one fleet.
type nemesis struct {
	t *testing.T
	f *fleet.Fleet

	mu      sync.Mutex
	done    map[string]int
	quorums []span
}

func newNemesis(t *testing.T, f *fleet.Fleet) *nemesis {
	return &nemesis{t: t, f: f, done: map[string]int{}}
}

// rage makes blows until ctx ends. Every blow is undone before it returns.
func (n *nemesis) rage(ctx context.Context, s *Storm, hit func(context.Context, Blow) error) {
	for ctx.Err() == nil && !n.t.Failed() {
		b := s.Next()
		switch err := hit(ctx, b); {
		case err == nil:
			n.count(b.Kind)
		case !errors.Is(err, errTooLate):
			n.t.Errorf("%s: %v", b.Kind, err)
			return
		}
		wait(ctx, b.Rest)
	}
}

func (n *nemesis) count(kind string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.done[kind]++
}

// hitDaemons makes one fault against daemons or their database. The harness waits
// to its end: a fault that is cut short by the end of the storm would be undone
// before anybody noticed it.
func (n *nemesis) hitDaemons(ctx context.Context, b Blow) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), b.Lasts+healing)
	defer done()
	nodes := n.f.Nodes()
	victim := nodes[b.Victim%len(nodes)]
	for _, d := range nodes {
		if d.State() == "dead" {
			n.t.Errorf("%s ended by itself: see %s", d.Name, d.LogFile())
			return d.Resume(ctx)
		}
	}
	switch b.Kind {
	case killLeader:
		leader, err := n.f.Leader(ctx)
		if err != nil {
			return err
		}
		victim = leader
		fallthrough
	case killDaemon:
		if err := victim.Kill(); err != nil {
			return err
		}
		wait(ctx, b.Lasts)
		return victim.Resume(ctx)
	case pauseDaemon:
		if err := victim.Pause(ctx); err != nil {
			return err
		}
		wait(ctx, b.Lasts)
		return victim.Resume(ctx)
	case loseQuorum:
		return n.loseQuorum(ctx, b, victim, nodes[(b.Victim+1)%len(nodes)])
	}
	if err := n.f.KillPostgres(ctx); err != nil {
		return err
	}
	wait(ctx, b.Lasts)
	return n.f.StartPostgres(ctx)
}

func (n *nemesis) loseQuorum(ctx context.Context, b Blow, victims ...*fleet.Node) error {
	for _, v := range victims {
		if err := v.Kill(); err != nil {
			return err
		}
	}
	from := time.Now()
	wait(ctx, b.Lasts)
	n.mu.Lock()
	n.quorums = append(n.quorums, span{from, time.Now()})
	n.mu.Unlock()
	for _, v := range victims {
		if err := v.Resume(ctx); err != nil {
			return err
		}
	}
	return nil
}

// hitAgents makes one fault against an agent that is not kept for hitFirst.
func (n *nemesis) hitAgents(ctx context.Context, b Blow) error {
	others := n.f.Agents()[1:]
	return n.hitAgent(ctx, b, others[b.Victim%len(others)])
}

// hitFirst makes one fault against the first agent, once it works: otherwise no lease could end meanwhile.
func (n *nemesis) hitFirst(ctx context.Context, b Blow) error {
	first := n.f.Agents()[0]
	for working := 0; working == 0 && ctx.Err() == nil; wait(ctx, 50*time.Millisecond) {
		// PostgreSQL may be away: then it is asked again.
		_ = n.f.Query(ctx, `SELECT count(*) FROM forge.leases WHERE state = 'active' AND accepted_at IS NOT NULL AND agent_id = $1`, []any{first.Name}, &working)
	}
	if ctx.Err() != nil {
		return errTooLate
	}
	return n.hitAgent(ctx, b, first)
}

func (n *nemesis) hitAgent(ctx context.Context, b Blow, a *fleet.Agent) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), b.Lasts+healing)
	defer done()
	if b.Kind == killAgent {
		if err := a.Kill(); err != nil {
			return err
		}
		wait(ctx, b.Lasts)
		return a.Start()
	}
	if err := a.Pause(ctx); err != nil {
		return err
	}
	wait(ctx, b.Lasts)
	return a.Resume()
}
