// Package conformance holds the one suite that every coordination engine must
// pass (§327): what cluster.Backend promises, and nothing of how an engine works.
package conformance

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// patience bounds every wait for a fact, in a fleet as well as standalone.
const patience = 15 * time.Second

// Backend runs the suite. open returns a running engine of a new cluster whose
// only voter is this node, Active; the suite closes it, and open may register
// a clean-up of its own that closes it again.
func Backend(t *testing.T, open func(t *testing.T) cluster.Backend) {
	for name, run := range map[string]func(*fixture){
		"identity and first view":              (*fixture).firstView,
		"leadership is committed once a term":  (*fixture).leadership,
		"a role goes through its life":         (*fixture).roleLife,
		"a retry returns the first result":     (*fixture).replay,
		"a rejection has a kind and no effect": (*fixture).rejections,
		"malformed proposals are refused":      (*fixture).malformed,
		"changes hint and coalesce":            (*fixture).changes,
		"a linearizable view is current":       (*fixture).linearizable,
		"one of many rivals wins each epoch":   (*fixture).rivals,
		"views never change or go back":        (*fixture).views,
		"confirmation stays fresh":             (*fixture).confirmation,
		"the leader has its own report":        (*fixture).reports,
		"calls end with their context":         (*fixture).contexts,
		"stepping down alone keeps the role":   (*fixture).stepDown,
		"an exclusive scope is held once":      (*fixture).exclusive,
		"closing ends everything":              (*fixture).closing,
	} {
		t.Run(name, func(t *testing.T) {
			leaks := goleak.IgnoreCurrent()
			b := open(t)
			f := &fixture{T: t, Backend: b, leaks: leaks}
			defer func() { require.NoError(t, b.Close()) }()
			run(f)
		})
	}
}

func (f *fixture) firstView() {
	self := f.Self()
	require.False(f.T, self.Cluster.IsZero() || self.Node.IsZero() || self.Incarnation.IsZero())
	f.awaitTerm()
	v := f.View()
	require.True(f.T, v.Initialised())
	require.Equal(f.T, self.Cluster, v.ClusterID)
	require.Equal(f.T, fsm.FirstGeneration, v.Generation)
	m, ok := v.Member(self.Node)
	require.True(f.T, ok)
	require.Equal(f.T, self.Incarnation, m.Incarnation)
	require.Equal(f.T, fsm.Voter, m.Role)
	require.Equal(f.T, fsm.Active, m.State)
	require.Equal(f.T, self.Node, v.KnownLeader)
	for _, g := range v.Roles {
		require.True(f.T, g.Vacant())
	}
}

func (f *fixture) leadership() {
	term := f.awaitTerm()
	require.NotZero(f.T, term)
	first := f.propose(f.begin(term, f.View().LeaderEpoch.Epoch))
	require.NotZero(f.T, first.Epoch)
	require.NotZero(f.T, first.Index)
	require.Equal(f.T, term, first.Term)
	v := f.View()
	require.Equal(f.T, fsm.LeaderEpoch{Term: term, Epoch: first.Epoch}, v.LeaderEpoch)
	require.Equal(f.T, f.Self().Node, v.Leader)
	require.Equal(f.T, f.Self().Incarnation, v.LeaderInc)
	require.Equal(f.T, term, v.RaftTerm)
	require.GreaterOrEqual(f.T, v.Index, first.Index)

	again := f.propose(f.begin(term, first.Epoch))
	require.True(f.T, again.NoOp)
	require.Equal(f.T, first.Epoch, again.Epoch)
	require.Equal(f.T, cluster.Fenced, f.refuse(f.begin(term+1, first.Epoch)).Kind, "a term it does not lead")
}

func (f *fixture) roleLife() {
	l := f.lead()
	self := f.Self()
	granted := f.propose(f.assign(l, fsm.SchedulerLeader, 0))
	require.Greater(f.T, granted.Epoch, l.Epoch)
	require.True(f.T, f.View().Role(fsm.SchedulerLeader).HeldBy(self.Node, self.Incarnation))

	other := f.propose(f.assign(l, fsm.ReleaseCoordinator, 0))
	renewed := f.propose(f.renew(fsm.SchedulerLeader, granted.Epoch))
	require.Greater(f.T, renewed.Epoch, other.Epoch, "one counter for all roles")

	f.propose(f.release(fsm.SchedulerLeader, renewed.Epoch))
	g := f.View().Role(fsm.SchedulerLeader)
	require.True(f.T, g.Vacant())
	require.Equal(f.T, renewed.Epoch, g.Epoch)
	why, ok := f.View().Release(fsm.SchedulerLeader)
	require.True(f.T, ok)
	require.Equal(f.T, "FY-TEST-001", why.Code)

	next := f.propose(f.assign(l, fsm.SchedulerLeader, renewed.Epoch))
	require.Greater(f.T, next.Epoch, renewed.Epoch)
}

func (f *fixture) replay() {
	l := f.lead()
	p := proposal(f.assign(l, fsm.SchedulerLeader, 0))
	first, err := f.Propose(f.Context(), p)
	require.NoError(f.T, err)
	require.False(f.T, first.Replay)
	counter := f.View().Epoch
	for range 3 {
		again, err := f.Propose(f.Context(), p)
		require.NoError(f.T, err)
		require.True(f.T, again.Replay)
		require.Equal(f.T, first.Epoch, again.Epoch)
	}
	require.Equal(f.T, counter, f.View().Epoch)
}

func (f *fixture) rejections() {
	l := f.lead()
	e := f.propose(f.assign(l, fsm.SchedulerLeader, 0)).Epoch

	stale := f.refuse(f.renew(fsm.SchedulerLeader, e-1))
	require.Equal(f.T, cluster.Fenced, stale.Kind)
	require.ErrorIs(f.T, stale, cluster.ErrFenced)
	require.ErrorIs(f.T, f.refuse(f.renew(fsm.SchedulerLeader, e+1)), cluster.ErrFenced)
	require.ErrorIs(f.T, f.refuse(f.assign(fsm.LeaderEpoch{Term: l.Term, Epoch: l.Epoch + 1}, fsm.SchedulerLeader, e)), cluster.ErrFenced)
	former := f.release(fsm.SchedulerLeader, e).(fsm.ReleaseRole)
	former.Incarnation = cluster.NewIncarnationID()
	require.ErrorIs(f.T, f.refuse(former), cluster.ErrFenced)
	ghost := f.assign(l, fsm.SchedulerLeader, e).(fsm.AssignRole)
	ghost.Owner = cluster.NewNodeID()
	require.Equal(f.T, cluster.MembershipConflict, f.refuse(ghost).Kind)
	require.Equal(f.T, cluster.MembershipConflict,
		f.refuse(fsm.PromoteVoter{ExpectedConfig: f.View().Config + 1, Node: f.Self().Node}).Kind)
	require.Equal(f.T, cluster.MembershipConflict,
		f.refuse(fsm.InitCluster{ClusterID: cluster.NewClusterID(), Name: "again", Founder: fsm.Member{Node: f.Self().Node, Incarnation: f.Self().Incarnation, Endpoint: "127.0.0.1:1"}}).Kind)
}

func (f *fixture) malformed() {
	l := f.lead()
	for name, p := range map[string]fsm.Proposal{
		"no request id":      {Command: f.assign(l, fsm.SchedulerLeader, 0)},
		"no command":         {Request: cluster.NewRequestID()},
		"no role":            proposal(f.assign(l, 0, 0)),
		"unknown role":       proposal(f.assign(l, 99, 0)),
		"a code too long":    proposal(fsm.ReleaseRole{Role: fsm.SchedulerLeader, Node: f.Self().Node, Incarnation: f.Self().Incarnation, Code: string(make([]byte, fsm.MaxCode+1))}),
		"an oversize reason": proposal(fsm.ReleaseRole{Role: fsm.SchedulerLeader, Node: f.Self().Node, Incarnation: f.Self().Incarnation, Reason: string(make([]byte, fsm.MaxCommand+1))}),
	} {
		before := f.View()
		_, err := f.Propose(f.Context(), p)
		require.ErrorIs(f.T, err, cluster.ErrMalformedCommand, name)
		require.False(f.T, cluster.OutcomeUnknown(err), name)
		require.False(f.T, cluster.KindOf(err).Retryable(), "%s: %v", name, err)
		require.Equal(f.T, before.Epoch, f.View().Epoch, name)
	}
}

func (f *fixture) changes() {
	l := f.lead()
	hint, stop := f.Changes()
	gone, stopGone := f.Changes()
	stopGone()
	drain(gone)
	drain(hint)
	e := f.propose(f.assign(l, fsm.SchedulerLeader, 0)).Epoch
	f.receive(hint)
	for range 10 { // nobody reads: hints coalesce and block no proposal
		e = f.propose(f.renew(fsm.SchedulerLeader, e)).Epoch
	}
	f.receive(hint)
	require.Equal(f.T, e, f.View().Role(fsm.SchedulerLeader).Epoch, "a hint is given after the view changed")
	require.Empty(f.T, gone, "a released subscription gets nothing")
	stop()
	stop()
}

func (f *fixture) linearizable() {
	l := f.lead()
	var e fsm.Epoch
	for range 20 {
		e = f.propose(f.assign(l, fsm.SchedulerLeader, e)).Epoch
		v, err := f.LinearizableView(f.Context())
		require.NoError(f.T, err)
		require.Equal(f.T, e, v.Role(fsm.SchedulerLeader).Epoch)
		require.False(f.T, v.Confirmed.IsZero())
	}
}

func (f *fixture) rivals() {
	l := f.lead()
	start := f.propose(f.assign(l, fsm.SchedulerLeader, 0)).Epoch
	var mu sync.Mutex
	won := map[fsm.Epoch]int{} // by the epoch that was ended
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 15 {
				at := f.View().Role(fsm.SchedulerLeader).Epoch
				commit, err := f.Propose(f.Context(), proposal(f.renew(fsm.SchedulerLeader, at)))
				if err != nil {
					if !errors.Is(err, cluster.ErrFenced) {
						f.Errorf("a rival lost with %v", err)
					}
					continue
				}
				mu.Lock()
				won[at]++
				mu.Unlock()
				if commit.Epoch <= at {
					f.Errorf("epoch %d was followed by %d", at, commit.Epoch)
				}
			}
		})
	}
	wg.Wait()
	for at, n := range won {
		require.Equal(f.T, 1, n, "epoch %d was ended %d times", at, n)
	}
	require.Equal(f.T, start+fsm.Epoch(len(won)), f.View().Role(fsm.SchedulerLeader).Epoch)
}

func (f *fixture) views() {
	l := f.lead()
	held := f.View()
	before := held.Role(fsm.SchedulerLeader)
	last := held.Index
	var e fsm.Epoch
	for range 10 {
		commit := f.propose(f.assign(l, fsm.SchedulerLeader, e))
		e = commit.Epoch
		v := f.View()
		require.Greater(f.T, v.Index, last)
		require.GreaterOrEqual(f.T, v.Index, commit.Index)
		last = v.Index
	}
	require.Equal(f.T, before, held.Role(fsm.SchedulerLeader), "a view is an immutable copy")
}

func (f *fixture) confirmation() {
	f.awaitTerm()
	for range 50 {
		f.eventually(func() bool { return time.Since(f.Confirmed()) < cluster.ConfirmationBound }, "confirmed")
	}
	v := f.View()
	require.False(f.T, v.Confirmed.IsZero())
	require.False(f.T, v.Confirmed.After(time.Now()), "a confirmation is never ahead")
}

func (f *fixture) reports() {
	self := f.Self()
	f.SetReporter(func() cluster.HealthReport {
		return cluster.HealthReport{Node: self.Node, Incarnation: self.Incarnation, PGWritable: true, PGWritableFor: time.Minute,
			RunnableRoles: []fsm.Role{fsm.SchedulerLeader}, AppliedIndex: f.View().Index}
	})
	f.awaitTerm()
	var own cluster.NodeReport
	f.eventually(func() bool {
		for _, r := range f.Reports() {
			if r.Node == self.Node && r.PGWritable {
				own = r
				return true
			}
		}
		return false
	}, "the leader reports of itself")
	require.Equal(f.T, self.Incarnation, own.Incarnation)
	require.Equal(f.T, []fsm.Role{fsm.SchedulerLeader}, own.RunnableRoles)
	require.Less(f.T, time.Since(own.Received), patience)
	for _, p := range f.Peers() {
		require.NotEqual(f.T, self.Node, p.Node, "peers are the others")
	}
}

func (f *fixture) contexts() {
	l := f.lead()
	ended, cancel := context.WithCancel(f.Context())
	cancel()
	start := time.Now()
	_, err := f.Propose(ended, proposal(f.assign(l, fsm.SchedulerLeader, 0)))
	require.Error(f.T, err)
	_, err = f.LinearizableView(ended)
	require.Error(f.T, err)
	require.Less(f.T, time.Since(start), cluster.DefaultRequestTimeout)

	// Whatever a call with almost no time answers, the request id finds out what happened.
	p := proposal(f.assign(l, fsm.ReleaseCoordinator, 0))
	short, cancel := context.WithTimeout(f.Context(), time.Microsecond)
	defer cancel()
	_, first := f.Propose(short, p)
	second, err := f.Propose(f.Context(), p)
	require.NoError(f.T, err)
	if first == nil {
		require.True(f.T, second.Replay)
	}
	require.Equal(f.T, second.Epoch, f.View().Role(fsm.ReleaseCoordinator).Epoch)
}

func (f *fixture) stepDown() {
	l := f.lead()
	e := f.propose(f.assign(l, fsm.SchedulerLeader, 0)).Epoch
	ctx, cancel := context.WithTimeout(f.Context(), cluster.DefaultRequestTimeout)
	defer cancel()
	_ = f.StepDown(ctx, "the suite asks") // there is nobody to hand over to: refusing is as good as doing nothing
	f.awaitTerm()
	require.Equal(f.T, e, f.View().Role(fsm.SchedulerLeader).Epoch)
}

func (f *fixture) closing() {
	l := f.lead()
	e := f.propose(f.assign(l, fsm.SchedulerLeader, 0)).Epoch
	hint, stop := f.Changes()
	defer stop()
	var wg sync.WaitGroup
	for range 4 { // proposals under way end, with or without an effect
		wg.Go(func() { _, _ = f.Propose(f.Context(), proposal(f.renew(fsm.SchedulerLeader, e))) })
	}
	require.NoError(f.T, f.Close())
	wg.Wait()
	drain(hint)

	_, leads := f.Leadership()
	require.False(f.T, leads)
	require.Greater(f.T, time.Since(f.Confirmed()), cluster.ConfirmationBound, "a closed engine confirms nothing")
	start := time.Now()
	_, err := f.Propose(f.Context(), proposal(f.renew(fsm.SchedulerLeader, e)))
	require.ErrorIs(f.T, err, cluster.ErrEngineClosed)
	_, err = f.LinearizableView(f.Context())
	require.ErrorIs(f.T, err, cluster.ErrEngineClosed)
	require.Less(f.T, time.Since(start), 2*cluster.DefaultRequestTimeout)
	require.GreaterOrEqual(f.T, f.View().Role(fsm.SchedulerLeader).Epoch, e, "the last view can still be read")
	require.NoError(f.T, f.Close(), "closing twice")
	goleak.VerifyNone(f.T, f.leaks)
}
