// One running engine under test: what it is asked to propose, and waits for what it then says.

package conformance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// fixture is one running engine under test.
type fixture struct {
	*testing.T
	cluster.Backend
	leaks goleak.Option
}

// lead waits until the engine leads and commits the leadership.
func (f *fixture) lead() fsm.LeaderEpoch {
	f.Helper()
	term := f.awaitTerm()
	v := f.View()
	if v.LeaderEpoch.Term != term {
		f.propose(f.begin(term, v.LeaderEpoch.Epoch))
	}
	return f.View().LeaderEpoch
}

func (f *fixture) awaitTerm() uint64 {
	f.Helper()
	var l cluster.Leadership
	f.eventually(func() (ok bool) { l, ok = f.Leadership(); return ok }, "the only voter leads")
	return l.Term
}

func (f *fixture) eventually(cond func() bool, what string) {
	f.Helper()
	require.Eventually(f.T, cond, patience, 5*time.Millisecond, what)
}

func (f *fixture) begin(term uint64, expected fsm.Epoch) fsm.Command {
	self := f.Self()
	return fsm.BumpEpoch{Term: term, ExpectedEpoch: expected, Node: self.Node, Incarnation: self.Incarnation}
}

func (f *fixture) assign(l fsm.LeaderEpoch, role fsm.Role, expected fsm.Epoch) fsm.Command {
	self := f.Self()
	return fsm.AssignRole{Leader: l, Role: role, ExpectedEpoch: expected, Owner: self.Node, Incarnation: self.Incarnation}
}

func (f *fixture) renew(role fsm.Role, expected fsm.Epoch) fsm.Command {
	self := f.Self()
	return fsm.BumpEpoch{Role: role, ExpectedEpoch: expected, Node: self.Node, Incarnation: self.Incarnation}
}

func (f *fixture) release(role fsm.Role, expected fsm.Epoch) fsm.Command {
	self := f.Self()
	return fsm.ReleaseRole{Role: role, ExpectedEpoch: expected, Node: self.Node, Incarnation: self.Incarnation, Code: "FY-TEST-001", Reason: "the suite is done with it"}
}

// propose commits one command under a new request id.
func (f *fixture) propose(c fsm.Command) cluster.Commit {
	f.Helper()
	commit, err := f.Propose(f.Context(), proposal(c))
	require.NoError(f.T, err)
	return commit
}

// refuse proposes what must be refused, and returns the error.
func (f *fixture) refuse(c fsm.Command) *cluster.Error {
	f.Helper()
	before := f.View()
	_, err := f.Propose(f.Context(), proposal(c))
	var refused *cluster.Error
	require.ErrorAs(f.T, err, &refused)
	require.False(f.T, refused.OutcomeUnknown, "a refusal is certain")
	require.NotEmpty(f.T, refused.Code)
	require.NotEmpty(f.T, refused.Message)
	after := f.View()
	require.Equal(f.T, before.Epoch, after.Epoch)
	require.Equal(f.T, before.Roles, after.Roles)
	require.Equal(f.T, before.Members, after.Members)
	return refused
}

func proposal(c fsm.Command) fsm.Proposal {
	return fsm.Proposal{Request: cluster.NewRequestID(), Command: c}
}

func (f *fixture) receive(hint <-chan struct{}) {
	f.Helper()
	select {
	case <-hint:
	case <-time.After(patience):
		require.Fail(f.T, "no hint came")
	}
}

func drain(hint <-chan struct{}) {
	select {
	case <-hint:
	default:
	}
}
