// Every figure by its name and value, over a real standalone engine where one is needed.

package obs

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/local"
	"github.com/forgeyard/forgeyard/cluster/reconcile"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
)

// gather reads collectors as a scrape does: name{label values} to value; a histogram gives its count.
func gather(t *testing.T, all ...prometheus.Collector) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	for _, c := range all {
		require.NoError(t, reg.Register(c))
	}
	families, err := reg.Gather()
	require.NoError(t, err)
	out := map[string]float64{}
	for _, f := range families {
		require.NotEmpty(t, f.GetHelp(), f.GetName())
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			name := strings.TrimPrefix(f.GetName(), "forgeyard_")
			require.NotEqual(t, f.GetName(), name, "the prefix")
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			switch f.GetType().String() {
			case "COUNTER":
				out[name] = m.GetCounter().GetValue()
			case "HISTOGRAM":
				out[name] = float64(m.GetHistogram().GetSampleCount())
			default:
				out[name] = m.GetGauge().GetValue()
			}
		}
	}
	return out
}

// spans keeps what it is told.
type spans struct {
	mu   sync.Mutex
	list []Span
}

func (s *spans) Span(_ context.Context, x Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, x)
}

func attrs(s Span) map[string]string {
	out := map[string]string{}
	for _, a := range s.Attrs {
		out[a.Key] = a.Value.String()
	}
	return out
}

// TestFencedObserved: each operation is counted, traced and logged once, with role and epochs.
func TestFencedObserved(t *testing.T) {
	var log bytes.Buffer
	told := &spans{}
	f := NewFences(told, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	began := time.Now()
	f.Observe(t.Context(), FencedOperation{Kind: "write", Role: fsm.SchedulerLeader, Generation: 2, Epoch: 17, Began: began, Took: time.Millisecond, Outcome: "Applied"})
	refused := cluster.ErrFenced.Wrap(nil, "the fence stands at 18")
	f.Observe(t.Context(), FencedOperation{Kind: "write", Role: fsm.SchedulerLeader, Generation: 2, Epoch: 17, Outcome: "Lost", Err: refused})
	f.Observe(t.Context(), FencedOperation{Kind: "assert", Role: fsm.ReleaseCoordinator, Generation: 2, Epoch: 9, Outcome: "Unknown", Err: errors.New("connection reset")})

	require.Equal(t, map[string]float64{
		"coordination_fenced_operations_total{write,Applied,SchedulerLeader}":     1,
		"coordination_fenced_operations_total{write,Lost,SchedulerLeader}":        1,
		"coordination_fenced_operations_total{assert,Unknown,ReleaseCoordinator}": 1,
		"fence_rejected_total{SchedulerLeader}":                                   1,
	}, gather(t, f))
	require.Len(t, told.list, 3)
	first := told.list[0]
	require.Equal(t, SpanFence, first.Name)
	require.Equal(t, began, first.Began)
	require.Equal(t, map[string]string{"operation": "write", "role": "SchedulerLeader", "generation": "2", "epoch": "17", "outcome": "Applied"}, attrs(first))
	require.ErrorIs(t, told.list[1].Err, cluster.ErrFenced)
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	require.Len(t, lines, 3)
	require.Contains(t, lines[1], "role=SchedulerLeader generation=2 epoch=17 outcome=Lost")
}

// node is a standalone node that leads, and whose observer sees what a test sets.
type node struct {
	*local.Backend
	service *cluster.Service
	guards  *Guards
	peers   []cluster.Peer
}

func (n *node) Peers() []cluster.Peer { return n.peers }

func (n *node) CommitIndex() uint64 { return n.View().Index + 2 }

func newNode(t *testing.T) *node {
	t.Helper()
	b, err := local.Open(local.Config{Self: cluster.Identity{Name: "alpha"}})
	require.NoError(t, err)
	n := &node{Backend: b, guards: NewGuards(nil)}
	n.service = cluster.NewService(cluster.ServiceConfig{Backend: b, Roles: fsm.Roles(), Tracer: n.guards})
	n.service.Start()
	t.Cleanup(func() {
		require.NoError(t, n.service.Close(context.Background()))
		require.NoError(t, b.Close())
	})
	return n
}

func propose(t *testing.T, b cluster.Backend, c fsm.Command) fsm.Epoch {
	t.Helper()
	commit, err := b.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: c})
	require.NoError(t, err)
	return commit.Epoch
}

func TestMetrics(t *testing.T) {
	n := newNode(t)
	self := n.Self()
	told := &spans{}
	proposals := NewProposals(told, nil)
	backend := proposals.Wrap(n)
	propose(t, backend, fsm.BumpEpoch{Term: 1, Node: self.Node, Incarnation: self.Incarnation})
	other := fsm.Member{Node: cluster.NewNodeID(), Incarnation: cluster.NewIncarnationID(), Name: "beta", Role: fsm.Learner,
		Endpoint: "127.0.0.1:7443", Protocol: fsm.VersionRange{Min: 1, Max: 1}}
	propose(t, backend, fsm.AddLearner{ExpectedConfig: n.View().Config, Member: other})
	epoch := propose(t, backend, fsm.AssignRole{Leader: n.View().LeaderEpoch, Role: fsm.SchedulerLeader, Owner: self.Node, Incarnation: self.Incarnation})
	_, err := backend.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: fsm.SetMaintenance{ExpectedEpoch: 99, State: fsm.ReadOnly}})
	require.ErrorIs(t, err, cluster.ErrFenced)
	n.peers = []cluster.Peer{{Node: other.Node, MatchIndex: n.View().Index - 3, LastContact: time.Now()}, {Node: cluster.NewNodeID()}}

	require.Eventually(t, func() bool { return n.service.Desired(fsm.SchedulerLeader).Epoch == epoch }, 5*time.Second, time.Millisecond)
	n.service.Report(fsm.SchedulerLeader, epoch, cluster.TreeFenced, "", "")
	n.service.Report(fsm.SchedulerLeader, epoch, cluster.TreeActive, "", "")
	observer := health.New(health.Config{Coordination: n, Now: time.Now, Own: func() cluster.HealthReport {
		return cluster.HealthReport{Node: self.Node, Incarnation: self.Incarnation, PGWritable: true, Roles: n.service.Status()}
	}})
	report := reconcile.Report{At: time.UnixMilli(1500), Findings: []reconcile.Finding{
		{Check: reconcile.Exclusive, Confirmed: true}, {Check: reconcile.Lock}}}
	figures := func() map[string]float64 {
		return gather(t, NewRaft(n, nil), NewRoles(n, n.service.Status), NewHealth(observer), n.guards, proposals,
			NewFindings(func() (reconcile.Report, bool) { return report, true }),
			NewActors(func() []ActorSample {
				return []ActorSample{{Depth: 1}, {Role: "SchedulerLeader", Depth: 2, Restarts: 1}, {Role: "SchedulerLeader", Restarts: 2}}
			}))
	}
	got := figures()
	index := float64(n.View().Index)
	for name, want := range map[string]float64{
		"raft_term": 1, "raft_has_leader": 1, "raft_applied_index": index, "raft_commit_index": index + 2,
		"raft_state{leader}": 1, "raft_state{follower}": 0, "raft_state{none}": 0, "raft_state{establishing}": 0,
		"raft_replication_lag_entries{beta}": 3, "raft_leader_changes_total": 1,
		"raft_commit_latency_seconds": 3, "raft_proposals_failed_total{Fenced}": 1,
		"role_active{SchedulerLeader}": 1, "role_active{ReleaseCoordinator}": 0,
		"role_epoch{SchedulerLeader}": float64(epoch), "role_epoch{ReleaseCoordinator}": 0, "scheduler_epoch": float64(epoch),
		"role_transition_duration_seconds{SchedulerLeader}": 1,
		"quorum_voters_configured":                          1, "quorum_voters_healthy": 1, "quorum_failure_tolerance": 0,
		"cluster_quorum_health{Healthy}": 1, "cluster_quorum_health{Degraded}": 0, "cluster_quorum_health{Lost}": 0, "cluster_quorum_health{Unknown}": 0,
		"maintenance_active{Normal}": 1, "maintenance_active{ReadOnly}": 0, "pg_up": 1,
		"actor_mailbox_depth{}": 1, "actor_mailbox_depth{SchedulerLeader}": 2, "actor_restarts{SchedulerLeader}": 3,
		"reconcile_findings{exclusive}": 1, "reconcile_findings{lock}": 0, "reconcile_last_sweep_timestamp_seconds": 1.5,
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, got, name, "%v", slices.Sorted(maps.Keys(got)))
			require.Equal(t, want, got[name])
		})
	}
	require.Less(t, got["view_age_seconds"], 1.0)
	require.Less(t, got["raft_last_contact_seconds{beta}"], 60.0)
	require.NotContains(t, got, "raft_replication_lag_entries{}", "a peer that is no member has no line")

	g, err := n.service.AcquireRole(t.Context(), fsm.SchedulerLeader)
	require.NoError(t, err)
	g.Lost(cluster.ErrFenced)
	n.service.Report(fsm.SchedulerLeader, epoch, cluster.TreeEnded, "", "")
	got = figures()
	require.Equal(t, 1.0, got["guard_revocations_total{fenced,SchedulerLeader}"])
	require.Zero(t, got["role_active{SchedulerLeader}"])

	var names []string
	for _, s := range told.list {
		names = append(names, s.Name)
	}
	require.Equal(t, []string{SpanLeaderChange, SpanMembership, SpanPropose, SpanPropose}, names)
	require.Equal(t, "AssignRole", attrs(told.list[2])["command"])
	require.Error(t, told.list[3].Err)
}

// TestFollowerFigures: without leadership and without a leader.
func TestFollowerFigures(t *testing.T) {
	f := follower{view: cluster.View{RaftTerm: 7, KnownLeader: cluster.NewNodeID()}}
	got := gather(t, NewRaft(&f, nil))
	require.Equal(t, 1.0, got["raft_state{follower}"])
	require.Equal(t, 1.0, got["raft_has_leader"])
	require.NotContains(t, got, "raft_commit_index", "this engine does not tell")
	require.NotContains(t, got, "view_age_seconds", "never confirmed")
	f.view.KnownLeader = fsm.NodeID{}
	got = gather(t, NewRaft(&f, nil))
	require.Equal(t, 1.0, got["raft_state{none}"])
	require.Zero(t, got["raft_has_leader"])
	f.self.Node = cluster.NewNodeID()
	f.view.KnownLeader = f.self.Node
	require.Equal(t, 1.0, gather(t, NewRaft(&f, nil))["raft_state{establishing}"])
}

type follower struct {
	self cluster.Identity
	view cluster.View
}

func (f *follower) Self() cluster.Identity                 { return f.self }
func (f *follower) View() cluster.View                     { return f.view }
func (f *follower) Leadership() (cluster.Leadership, bool) { return cluster.Leadership{}, false }
func (f *follower) Peers() []cluster.Peer                  { return nil }

// TestGuardsPassOn: the tracer behind sees every event, and a revoked grant is no transition.
func TestGuardsPassOn(t *testing.T) {
	rec := &trace.Recorder{}
	g := NewGuards(rec)
	for _, e := range []trace.Event{
		{Kind: trace.Grant, Role: fsm.SchedulerLeader, Epoch: 1, Mono: 1},
		{Kind: trace.Inactive, Role: fsm.SchedulerLeader, Epoch: 1, Mono: 2, Detail: "moved"},
		{Kind: trace.Active, Role: fsm.SchedulerLeader, Epoch: 1, Mono: 3},
		{Kind: trace.Grant, Role: fsm.SchedulerLeader, Epoch: 2, Mono: 4},
		{Kind: trace.Active, Role: fsm.SchedulerLeader, Epoch: 2, Mono: 5},
	} {
		g.Trace(e)
	}
	require.Len(t, rec.Events(), 5)
	require.Equal(t, map[string]float64{
		"guard_revocations_total{moved,SchedulerLeader}":    1,
		"role_transition_duration_seconds{SchedulerLeader}": 1,
	}, gather(t, g))
}
