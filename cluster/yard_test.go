// Two processes of one fleet for the model of guards: the committed state, and engines whose views are handed out one by one.

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
)

// yard is the committed state and every view there ever was of it. Node 1 and 2
// are processes under test, node 3 leads and has no Service.
type yard struct {
	mu    sync.Mutex
	state *fsm.State
	term  uint64
	views []fsm.View
	since []time.Time // of each view
}

func newYard(t require.TestingT) *yard {
	y := &yard{state: fsm.NewState(), term: 1}
	member := func(n byte) fsm.Member {
		return fsm.Member{Node: fsm.NodeID{n}, Incarnation: fsm.IncarnationID{n}, Name: fmt.Sprint("node-", n),
			Endpoint: fsm.Endpoint(fmt.Sprintf("10.0.0.%d:7443", n)), Protocol: fsm.VersionRange{Min: 1, Max: 1}, Role: fsm.Learner}
	}
	founder := member(3)
	founder.Role = fsm.Voter
	y.must(t, fsm.InitCluster{ClusterID: fsm.ClusterID{1}, Name: "yard", Founder: founder})
	for n := byte(1); n <= 2; n++ {
		y.must(t, fsm.AddLearner{ExpectedConfig: y.newest().Config, Member: member(n)})
		y.must(t, fsm.UpdateMember{Node: fsm.NodeID{n}, ExpectedIncarnation: fsm.IncarnationID{n}, State: fsm.Active})
		y.must(t, fsm.PromoteVoter{ExpectedConfig: y.newest().Config, Node: fsm.NodeID{n}})
	}
	y.elect(t)
	return y
}

func (y *yard) propose(p fsm.Proposal) (cluster.Commit, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	index := uint64(len(y.views) + 1)
	res, err := y.state.Apply(index, y.term, p)
	var rejection *fsm.Rejection
	if errors.As(err, &rejection) {
		return cluster.Commit{}, cluster.FromRejection(rejection)
	}
	y.views, y.since = append(y.views, y.state.View()), append(y.since, time.Now())
	return cluster.Commit{Result: res, Index: index, Term: y.term}, err
}

func (y *yard) must(t require.TestingT, c fsm.Command) fsm.Result {
	commit, err := y.propose(fsm.Proposal{Request: cluster.NewRequestID(), Command: c})
	require.NoError(t, err, "%s", c.Kind())
	return commit.Result
}

func (y *yard) elect(t require.TestingT) {
	y.term++
	y.must(t, fsm.BumpEpoch{Term: y.term, ExpectedEpoch: y.newest().LeaderEpoch.Epoch, Node: fsm.NodeID{3}, Incarnation: fsm.IncarnationID{3}})
}

func (y *yard) newest() fsm.View {
	v, _ := y.at(y.last())
	return v
}

func (y *yard) last() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.views) - 1
}

// at is a view and when the next one replaced it; now while it is the newest.
func (y *yard) at(i int) (v fsm.View, until time.Time) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if i < 0 {
		return fsm.View{}, time.Now()
	}
	if i == len(y.views)-1 {
		return y.views[i], time.Now()
	}
	return y.views[i], y.since[i+1]
}

// fate is what becomes of the next proposals of a process.
type fate int

const (
	committed  fate = iota
	lostBefore      // it never reached the leader
	lostAfter       // it was committed, its answer was lost
	fates
)

// process is an engine whose views the machine hands out, and the Service on it.
type process struct {
	cluster.Backend // nil: the Service uses nothing but what is below
	yard            *yard
	self            cluster.Identity
	hints           cluster.Hints
	service         *cluster.Service
	trees           *trees
	rec             *trace.Recorder

	mu      sync.Mutex
	newest  int  // the newest view it was given
	shown   int  // the view it has at this moment; older when views come out of order
	follows bool // it has every view at once
	cut     time.Time
	gone    bool // it was killed
	ended   bool
	fate    fate
	exits   int
	guards  []cluster.RoleGuard
	spent   map[cluster.RoleGuard]bool // guards that refused once
	minted  map[fsm.Role]fsm.Epoch
	refused int
}

func (y *yard) start(node byte, inc fsm.IncarnationID) *process {
	p := &process{
		yard: y, self: cluster.Identity{Cluster: fsm.ClusterID{1}, Node: fsm.NodeID{node}, Incarnation: inc}, rec: &trace.Recorder{},
		newest: -1, shown: -1, spent: map[cluster.RoleGuard]bool{}, minted: map[fsm.Role]fsm.Epoch{},
	}
	p.service = cluster.NewService(cluster.ServiceConfig{Backend: p, Tracer: p.rec, Roles: fsm.Roles(), Exit: func(int, string) { p.locked(func() { p.exits++ }) }})
	p.service.Start()
	p.trees = startTrees(p.service, p.rec)
	return p
}

func (p *process) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *process) Self() cluster.Identity { return p.self }

func (p *process) Changes() (<-chan struct{}, func()) { return p.hints.Subscribe() }

func (p *process) Leadership() (cluster.Leadership, bool) { return cluster.Leadership{}, false }

func (p *process) View() cluster.View {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.follows {
		p.newest, p.shown = p.yard.last(), p.yard.last()
	}
	v, _ := p.yard.at(p.shown)
	return cluster.View{View: v}
}

// Confirmed is what an engine owes: the newest view it was given was current then.
func (p *process) Confirmed() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, current := p.yard.at(p.newest)
	if p.newest < 0 {
		return time.Time{}
	}
	if !p.cut.IsZero() && p.cut.Before(current) {
		return p.cut
	}
	return current
}

func (p *process) Propose(_ context.Context, proposal fsm.Proposal) (cluster.Commit, error) {
	p.mu.Lock()
	unreachable, fate := p.gone || !p.cut.IsZero(), p.fate
	p.fate = committed
	p.mu.Unlock()
	if unreachable || fate == lostBefore {
		return cluster.Commit{}, cluster.ErrNoQuorum
	}
	commit, err := p.yard.propose(proposal)
	if fate == lostAfter {
		return cluster.Commit{}, cluster.ErrTimeout.Wrap(nil, "")
	}
	return commit, err
}

// kill ends the process as it stands: it reaches nobody any more.
func (p *process) kill() {
	p.locked(func() { p.gone = true })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.end(ctx) // what it still owns is not released, of course
}

// close ends the process in order: its roles are released.
func (p *process) close() error {
	p.locked(func() { p.follows = true })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return p.end(ctx)
}

func (p *process) end(ctx context.Context) error {
	p.ended = true
	p.trees.release()
	err := p.service.Close(ctx)
	p.trees.stop()
	return err
}

// look collects the guards that can be had now and checks every one there ever was.
func (p *process) look(t *rapid.T) {
	given, _ := p.yard.at(p.newest)
	for _, role := range fsm.Roles() {
		g, err := p.service.AcquireRole(context.Background(), role)
		if err != nil {
			continue
		}
		if !slices.Contains(p.guards, g) {
			require.Greater(t, g.Epoch(), p.minted[role], "an epoch was minted again, or an older one")
			p.minted[role] = g.Epoch()
			p.guards = append(p.guards, g)
		}
	}
	usable := map[fsm.Role]fsm.Epoch{}
	for _, g := range p.guards {
		if g.CheckGranted() != nil {
			p.spent[g] = true
			p.refused++
			require.Error(t, g.Check())
			require.Error(t, g.Context().Err(), "the guard refuses and its context lives")
			continue
		}
		require.False(t, p.spent[g], "%s epoch %d is usable again", g.Role(), g.Epoch())
		require.False(t, p.gone, "a guard of a process that has ended")
		require.Zero(t, usable[g.Role()], "two usable guards of %s", g.Role())
		usable[g.Role()] = g.Epoch()
		grant := given.Role(g.Role())
		require.True(t, grant.HeldBy(p.self.Node, p.self.Incarnation) && grant.Epoch == g.Epoch(),
			"%s epoch %d is usable under a view that gives it to %s epoch %d", g.Role(), g.Epoch(), grant.Owner, grant.Epoch)
		require.LessOrEqual(t, time.Since(p.Confirmed()), cluster.ConfirmationBound)
	}
	require.False(t, p.trees.doubled.Load(), "two trees of a role")
	require.Zero(t, p.exits)
}
