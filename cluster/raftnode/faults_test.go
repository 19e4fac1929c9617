// Leadership and proposals under faults: slow apply, lost leaders, hung disks, foreign entries, flips.

package raftnode

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// gate is a log store whose calls can be held up.
type gate struct {
	raft.LogStore
	mu   sync.Mutex
	held chan struct{} // open while calls pass
}

func (g *gate) hold() (release func()) {
	c := make(chan struct{})
	g.mu.Lock()
	g.held = c
	g.mu.Unlock()
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.held == c {
			g.held = nil
			close(c)
		}
	}
}

func (g *gate) StoreLogs(entries []*raft.Log) error {
	g.mu.Lock()
	held := g.held
	g.mu.Unlock()
	if held != nil {
		<-held
	}
	return g.LogStore.StoreLogs(entries)
}

func gated(g *gate) func(*Config) {
	return func(c *Config) {
		c.WrapLog = func(s raft.LogStore) raft.LogStore { g.LogStore = s; return g }
	}
}

func exclusive(m *member) fsm.StartExclusiveOperation {
	return fsm.StartExclusiveOperation{Scope: fsm.GlobalGcCoordination, Owner: m.id, Incarnation: m.cfg.Self.Incarnation}
}

func TestProposeViaFollower(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		m := f.others(f.leader())[0]
		p := fsm.Proposal{Request: cluster.NewRequestID(), Command: exclusive(m)}
		first, err := m.node.Propose(t.Context(), p)
		require.NoError(t, err)
		require.NotZero(t, first.Epoch)
		// The same request again is the same result: the retry after an unknown outcome.
		again, err := m.node.Propose(t.Context(), p)
		require.NoError(t, err)
		require.True(t, again.Replay)
		require.Equal(t, first.Epoch, again.Epoch)

		// The leader's refusal keeps its kind and code on the way back.
		_, err = m.node.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: exclusive(m)})
		require.Equal(t, cluster.MembershipConflict, cluster.KindOf(err))
		require.False(t, cluster.OutcomeUnknown(err))
	})
}

func TestForwardIsAuthorisedByCertificate(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		m, o := f.others(leader)[0], f.others(leader)[1]
		f.eventually(func() bool {
			x, _ := leader.node.View().Member(m.id)
			return x.Incarnation == m.cfg.Self.Incarnation
		})
		line := f.board.lines[leader.id]
		stranger := cluster.NewNodeID()
		peer := func(s pki.Subject, inc fsm.IncarnationID) transport.Peer {
			return transport.Peer{Subject: s, Hello: transport.Hello{Cluster: s.Cluster, ID: s.ID, Incarnation: inc}}
		}
		self := peer(pki.Node(f.cluster, m.id), m.cfg.Self.Incarnation)
		mine, inc := m.id, m.cfg.Self.Incarnation
		founder := m.describe(inc)
		founder.Role, founder.State = fsm.Voter, fsm.Active
		for name, c := range map[string]struct {
			from    transport.Peer
			command fsm.Command
			allowed bool
		}{
			"its own exclusive operation":   {self, exclusive(m), true},
			"its own endpoint":              {self, fsm.UpdateMember{Node: mine, ExpectedIncarnation: inc, Incarnation: inc, Endpoint: "127.0.0.1:9"}, true},
			"its own state":                 {self, fsm.UpdateMember{Node: mine, ExpectedIncarnation: inc, Incarnation: inc, State: fsm.Draining}, false},
			"another incarnation of itself": {self, fsm.UpdateMember{Node: mine, ExpectedIncarnation: inc, Incarnation: cluster.NewIncarnationID()}, false},
			"another node's exclusive":      {self, exclusive(o), false},
			"another node's role":           {self, fsm.ReleaseRole{Role: fsm.SchedulerLeader, Node: o.id, Incarnation: o.cfg.Self.Incarnation}, false},
			"a role as if it led":           {self, fsm.ReleaseRole{Leader: fsm.LeaderEpoch{Term: 1, Epoch: 1}, Role: fsm.SchedulerLeader, Node: mine, Incarnation: inc}, false},
			"a leadership":                  {self, fsm.BumpEpoch{Term: 9, Node: mine, Incarnation: inc}, false},
			"an assignment":                 {self, fsm.AssignRole{Role: fsm.SchedulerLeader, Owner: mine, Incarnation: inc}, false},
			"an admission":                  {self, fsm.AddLearner{Member: m.describe(inc)}, false},
			"a promotion":                   {self, fsm.PromoteVoter{Node: mine}, false},
			"a removal":                     {self, fsm.RemoveMember{Node: o.id, Force: true}, false},
			"maintenance":                   {self, fsm.SetMaintenance{State: fsm.FullMaintenance}, false},
			"a feature":                     {self, fsm.ActivateFeature{Feature: 1}, false},
			"a new cluster":                 {self, fsm.InitCluster{ClusterID: f.cluster, Name: "x", Founder: founder}, false},
			"a node that is no member":      {peer(pki.Node(f.cluster, stranger), inc), fsm.StartExclusiveOperation{Scope: fsm.GlobalGcCoordination, Owner: stranger, Incarnation: inc}, false},
			"an agent with a member's id":   {peer(pki.Subject{Cluster: f.cluster, Kind: pki.KindAgent, ID: mine.String()}, inc), exclusive(m), false},
			"a node of another cluster":     {peer(pki.Node(cluster.NewClusterID(), mine), inc), exclusive(m), false},
		} {
			data, err := fsm.EncodeProposal(fsm.Proposal{Request: cluster.NewRequestID(), Command: c.command})
			require.NoError(t, err, name)
			before := leader.node.View().Index
			body, err := cbor.Marshal(proposeRequest{Proposal: data})
			require.NoError(t, err, name)
			_, err = line.handlers[methodPropose](t.Context(), c.from, body)
			if c.allowed {
				require.NoError(t, err, name)
				continue
			}
			require.ErrorIs(t, err, ErrNotPermitted, name)
			require.Equal(t, before, leader.node.View().Index, "%s reached the log", name)
		}
	})
}

func TestLeaderOnlyCommandsAreNeverForwarded(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		m := f.others(f.leader())[0]
		start := time.Now()
		_, err := m.node.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: fsm.SetMaintenance{State: fsm.ReadOnly}})
		require.ErrorIs(t, err, cluster.ErrNotLeader)
		require.False(t, cluster.OutcomeUnknown(err))
		require.Less(t, time.Since(start), cluster.DefaultRequestTimeout)
	})
}

func TestProposalOutcomeUnknown(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		leader.connect(false)
		// It still leads, appends, and can commit nothing.
		_, err := leader.node.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: fsm.SetMaintenance{State: fsm.ReadOnly}})
		require.Error(t, err)
		require.True(t, cluster.OutcomeUnknown(err), "%v", err)

		// A member's own command goes on through the new leader once the cut heals:
		// the first attempt's outcome is unknown, the request id makes the retry harmless.
		f.leader(f.others(leader)...)
		p := fsm.Proposal{Request: cluster.NewRequestID(), Command: exclusive(leader)}
		done := make(chan error, 1)
		go func() { _, err := leader.node.Propose(t.Context(), p); done <- err }()
		leader.connect(true)
		require.NoError(t, <-done)
	})
}

func TestNoQuorum(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		for _, m := range f.others(leader) {
			m.close()
		}
		f.eventually(func() bool { _, leads := leader.node.Leadership(); return !leads })
		f.eventually(func() bool { return leader.node.View().KnownLeader.IsZero() })
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := leader.node.Propose(ctx, fsm.Proposal{Request: cluster.NewRequestID(), Command: exclusive(leader)})
		require.Equal(t, cluster.NoQuorum, cluster.KindOf(err), "%v", err)
		require.False(t, cluster.OutcomeUnknown(err))
		require.Less(t, time.Since(start), 5*time.Second)
	})
}

// A leader counts only once everything committed before it is applied here.
func TestBarrierBeforeLeadership(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		commit := f.propose(leader.node, fsm.SetMaintenance{State: fsm.NoScheduling})
		// Whichever heir wins, its state machine stands still until it is let go.
		let := make(chan struct{})
		var held atomic.Bool
		var nodes []*Node
		for _, h := range f.others(leader) {
			h.close()
			h.start(func(c *Config) {
				c.beforeApply = func() {
					if held.Load() {
						<-let
					}
				}
			})
			f.eventually(func() bool { return h.node.View().Index >= commit.Index })
			nodes = append(nodes, h.node)
		}
		require.Same(t, leader, f.leader())
		held.Store(true)
		for i := range 100 {
			f.propose(leader.node, fsm.SetMaintenance{ExpectedEpoch: leader.node.View().MaintenanceEpoch, State: fsm.Maintenance(1 + i%2)})
		}
		last := leader.node.View().Index
		// Every entry is committed, which takes an heir; the leader goes once both hold the log.
		for _, n := range nodes {
			f.eventually(func() bool { return n.raft.LastIndex() >= last })
		}
		leader.close()
		var heir *Node
		f.eventually(func() bool {
			for _, n := range nodes {
				if n.raft.State() == raft.Leader {
					heir = n
				}
			}
			return heir != nil
		})
		<-time.After(5 * leadershipPoll) // a leader that waited for nothing would count by now
		_, leads := heir.Leadership()
		require.False(t, leads, "it leads without its barrier")
		require.Less(t, heir.View().Index, last)
		close(let)
		f.eventually(func() bool { _, leads := heir.Leadership(); return leads })
		require.GreaterOrEqual(t, heir.View().Index, last)
	})
}

// A leader whose state machine hangs is acknowledged by everyone, but its view is
// old: it proves nothing, to itself or to those that ping it, until it caught up.
func TestLeaderThatDoesNotApplyGoesStale(t *testing.T) {
	for _, voters := range []int{1, 3} {
		bubble(t, 0, func(t *testing.T, f *fleet) {
			let := make(chan struct{})
			var held atomic.Bool
			leader := f.add()
			leader.start(bootstrap, func(c *Config) {
				c.beforeApply = func() {
					if held.Load() {
						<-let
					}
				}
			})
			f.leader()
			for len(f.nodes) < voters {
				m := f.add()
				m.start()
				f.admit(leader, m)
				f.promote(leader, m)
			}
			fresh := func() bool {
				for _, m := range f.nodes {
					if time.Since(m.node.Confirmed()) > cluster.ConfirmationBound {
						return false
					}
				}
				return true
			}
			f.eventually(fresh)

			held.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			sent := time.Now()
			_, err := leader.node.Propose(ctx, fsm.Proposal{Request: cluster.NewRequestID(), Command: exclusive(leader)})
			require.True(t, cluster.OutcomeUnknown(err))
			f.eventually(func() bool { return time.Since(sent) > 2*time.Second })
			_, leads := leader.node.Leadership()
			require.True(t, leads, "the majority is there")
			for _, m := range f.nodes {
				require.Greater(t, time.Since(m.node.Confirmed()), 2*time.Second-cluster.ConfirmationBound)
			}
			close(let)
			f.eventually(fresh)
		})
	}
}

// An entry of a kind this build does not know: apply stops for good, roles are
// given up, the leadership is handed over, and nothing is skipped.
func TestUnknownEntryStopsApplying(t *testing.T) {
	bubble(t, 0, func(t *testing.T, f *fleet) {
		m := f.add()
		m.start(bootstrap)
		f.leader()
		before := m.node.View().Index
		require.NoError(t, m.node.raft.Apply([]byte("from a newer build"), time.Second).Error())
		f.eventually(func() bool { return m.node.Failure() != nil })
		require.ErrorIs(t, m.node.Failure(), cluster.ErrNewerBuild)
		require.Equal(t, cluster.IncompatibleVersion, cluster.KindOf(m.node.Failure()))
		require.True(t, m.node.Confirmed().IsZero())
		_, leads := m.node.Leadership()
		require.False(t, leads)
		_, err := m.node.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: exclusive(m)})
		require.ErrorIs(t, err, cluster.ErrNewerBuild)

		// A known entry behind it is not applied either, and no snapshot hides the gap.
		data, err := fsm.EncodeProposal(fsm.Proposal{Request: cluster.NewRequestID(), Command: exclusive(m)})
		require.NoError(t, err)
		require.NoError(t, m.node.raft.Apply(data, time.Second).Error())
		require.Equal(t, before, m.node.View().Index)
		require.Error(t, m.node.raft.Snapshot().Error())
	})
}

func TestHungDiskStopsLeading(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		leader.close()
		var g gate
		leader.start(gated(&g), func(c *Config) { c.StallLimit = 300 * time.Millisecond })
		f.leader()
		f.eventually(func() bool { return leader.node.raft.LastIndex() >= f.leader().node.raft.LastIndex() })
		f.eventually(func() bool { // until the gated node leads
			l := f.leader()
			if l != leader {
				_ = l.node.StepDown(t.Context(), "the test wants the other one")
			}
			_, leads := leader.node.Leadership()
			return leads
		})
		release := g.hold()
		defer release()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := leader.node.Propose(ctx, fsm.Proposal{Request: cluster.NewRequestID(), Command: fsm.SetMaintenance{State: fsm.ReadOnly}})
		require.Error(t, err)
		require.Contains(t, <-leader.exits, ErrStoreStalled.Code)
		require.ErrorIs(t, leader.node.Failure(), ErrStoreStalled)
		require.True(t, leader.node.Confirmed().IsZero())
		// Its heartbeats have ended, so the others elect, and this one still answers.
		next := f.leader(f.others(leader)...)
		require.NotEqual(t, leader.id, next.id)
		require.Len(t, leader.node.View().Members, 3)
		release()
	})
}

func TestLeaderLifecycleFastFlipsWithASlowReader(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		_, stop := f.nodes[0].node.Changes() // a reader that never reads
		defer stop()
		before := f.leader().node.View().RaftTerm
		for range 50 {
			l := f.leader()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_ = l.node.StepDown(ctx, "flip") // a refused handover is a flip less
			cancel()
		}
		l := f.leader()
		require.Greater(t, l.node.View().RaftTerm, before+25)
		start := time.Now()
		f.propose(l.node, fsm.SetMaintenance{ExpectedEpoch: l.node.View().MaintenanceEpoch, State: fsm.ReadOnly})
		require.Less(t, time.Since(start), time.Second)
		for _, m := range f.nodes {
			f.eventually(func() bool { return m.node.View().Maintenance == fsm.ReadOnly })
		}
	})
}

// Two processes under one identity: the later start wins, the earlier one ends.
func TestSupersededProcessEnds(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		m := f.others(leader)[0]
		f.eventually(func() bool {
			x, _ := leader.node.View().Member(m.id)
			return x.Incarnation == m.cfg.Self.Incarnation
		})
		f.propose(leader.node, fsm.UpdateMember{Node: m.id, ExpectedIncarnation: m.cfg.Self.Incarnation, Incarnation: cluster.NewIncarnationID()})
		require.Contains(t, <-m.exits, ErrSuperseded.Code)
		require.True(t, m.node.Confirmed().IsZero())
	})
}
