// A scripted backend: the real state machine behind knobs for leadership, contact and faults.

package actors

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

func number[T ~[16]byte](n uint64) T {
	var id [16]byte
	binary.BigEndian.PutUint64(id[8:], n)
	return T(id)
}

func member(n uint64) fsm.Member {
	return fsm.Member{
		Node: number[fsm.NodeID](n), Incarnation: number[fsm.IncarnationID](n), Name: fmt.Sprintf("node-%d", n),
		Endpoint: fsm.Endpoint(fmt.Sprintf("10.0.0.%d:7443", n)),
		Protocol: fsm.VersionRange{Min: 1, Max: 1}, Build: "test",
	}
}

// script is node 1 of a fleet of two voters. Node 2 exists in the state only.
type script struct {
	hints cluster.Hints

	mu        sync.Mutex
	state     *fsm.State
	index     uint64
	term      uint64
	leads     bool
	cutAt     time.Time // since when this node hears of nobody; zero: connected
	refuse    error     // what Propose answers instead of committing
	proposals []fsm.Command
	stepDowns []string
	reporter  func() cluster.HealthReport
}

func newScript() *script {
	s := &script{state: fsm.NewState(), term: 1}
	learner := member(2)
	learner.Role = fsm.Learner
	s.commit(fsm.InitCluster{ClusterID: number[fsm.ClusterID](1), Name: "yard", Founder: member(1)})
	s.commit(fsm.AddLearner{ExpectedConfig: s.view().Config, Member: learner})
	s.commit(fsm.UpdateMember{Node: member(2).Node, ExpectedIncarnation: member(2).Incarnation, State: fsm.Active})
	s.commit(fsm.PromoteVoter{ExpectedConfig: s.view().Config, Node: member(2).Node})
	return s
}

func (s *script) view() fsm.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.View()
}

// commit applies a command as if a majority had committed it; it must be acceptable.
func (s *script) commit(c fsm.Command) fsm.Result {
	res, err := s.apply(fsm.Proposal{Request: cluster.NewRequestID(), Command: c})
	if err != nil {
		panic(fmt.Sprintf("%T: %v", c, err))
	}
	return res.Result
}

func (s *script) apply(p fsm.Proposal) (cluster.Commit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	res, err := s.state.Apply(s.index+1, s.term, p)
	if err != nil {
		var rej *fsm.Rejection
		if errors.As(err, &rej) {
			return cluster.Commit{}, cluster.FromRejection(rej)
		}
		return cluster.Commit{}, err
	}
	s.index++
	s.hints.Notify()
	return cluster.Commit{Result: res, Index: s.index, Term: s.term}, nil
}

// office makes node n the committed coordination leader, without a leader actor here.
func (s *script) office(n uint64) {
	s.mu.Lock()
	s.term++
	term := s.term
	s.mu.Unlock()
	s.commit(fsm.BumpEpoch{Term: term, ExpectedEpoch: s.view().LeaderEpoch.Epoch, Node: member(n).Node, Incarnation: member(n).Incarnation})
}

// assign grants a role to node n under the current leadership and returns the epoch.
func (s *script) assign(r fsm.Role, n uint64) fsm.Epoch {
	for {
		v := s.view()
		c := fsm.AssignRole{Leader: v.LeaderEpoch, Role: r, ExpectedEpoch: v.Role(r).Epoch, Owner: member(n).Node, Incarnation: member(n).Incarnation}
		if res, err := s.apply(fsm.Proposal{Request: cluster.NewRequestID(), Command: c}); err == nil {
			return res.Epoch
		}
		// The owner renewed its epoch in between.
	}
}

// vacate takes a role from its owner under the current leadership.
func (s *script) vacate(r fsm.Role) {
	v := s.view()
	g := v.Role(r)
	s.commit(fsm.ReleaseRole{Leader: v.LeaderEpoch, Role: r, ExpectedEpoch: g.Epoch, Node: g.Owner, Incarnation: g.Incarnation, Code: "FY-TEST-001", Reason: "test"})
}

// lead starts a term of this node and returns it.
func (s *script) lead() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term++
	s.leads = true
	s.hints.Notify()
	return s.term
}

func (s *script) follow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leads = false
	s.hints.Notify()
}

// cut and heal take contact with the fleet away and give it back.
func (s *script) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutAt = time.Now()
}

func (s *script) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutAt = time.Time{}
	s.hints.Notify()
}

// refuseWith makes every proposal fail with err; nil: commit again.
func (s *script) refuseWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

func (s *script) proposed() []fsm.Command {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.proposals)
}

func (s *script) steppedDown() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.stepDowns)
}

func (s *script) Self() cluster.Identity {
	return cluster.Identity{Cluster: number[fsm.ClusterID](1), Node: member(1).Node, Incarnation: member(1).Incarnation, Name: "node-1"}
}

func (s *script) View() cluster.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cluster.View{View: s.state.View(), Confirmed: s.confirmed(), RaftTerm: s.term}
}

func (s *script) confirmed() time.Time {
	if !s.cutAt.IsZero() {
		return s.cutAt
	}
	return time.Now()
}

func (s *script) Confirmed() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed()
}

func (s *script) Propose(ctx context.Context, p fsm.Proposal) (cluster.Commit, error) {
	if err := ctx.Err(); err != nil {
		return cluster.Commit{}, err
	}
	s.mu.Lock()
	refuse, away := s.refuse, !s.cutAt.IsZero()
	s.proposals = append(s.proposals, p.Command)
	s.mu.Unlock()
	switch {
	case refuse != nil:
		return cluster.Commit{}, refuse
	case away:
		return cluster.Commit{}, cluster.ErrNoQuorum
	}
	return s.apply(p)
}

func (s *script) Leadership() (cluster.Leadership, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cluster.Leadership{Term: s.term}, s.leads
}

func (s *script) Reports() []cluster.NodeReport {
	s.mu.Lock()
	reporter := s.reporter
	s.mu.Unlock()
	if reporter == nil {
		return nil
	}
	return []cluster.NodeReport{{HealthReport: reporter(), Received: time.Now()}}
}

func (s *script) SetReporter(f func() cluster.HealthReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reporter = f
}

func (s *script) StepDown(_ context.Context, reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stepDowns = append(s.stepDowns, reason)
	return nil
}

func (s *script) Changes() (<-chan struct{}, func()) { return s.hints.Subscribe() }
func (s *script) LinearizableView(context.Context) (cluster.View, error) {
	return s.View(), nil
}
func (s *script) Peers() []cluster.Peer { return nil }
func (s *script) Close() error          { return nil }

var _ cluster.Backend = (*script)(nil)
