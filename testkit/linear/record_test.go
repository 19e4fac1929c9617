// What the recorder notes by itself.

package linear_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/linear"
)

// process is an engine that is asked who it is, and nothing else.
type process struct {
	cluster.Backend
	self cluster.Identity
}

func (p process) Self() cluster.Identity { return p.self }

// A new incarnation may end the grants of the one before, at any time after it was
// begun: the engine says so by itself, past every caller.
func TestNewIncarnationMayVacate(t *testing.T) {
	var rec linear.Recorder
	node, first, second := fsm.NodeID{15: 1}, fsm.IncarnationID{15: 1}, fsm.IncarnationID{15: 2}
	for _, inc := range []fsm.IncarnationID{first, first, second} {
		rec.Watch(process{self: cluster.Identity{Node: node, Incarnation: inc}})
	}
	ops := rec.Grants()
	require.Len(t, ops, len(fsm.Roles()))
	for _, op := range ops {
		require.Equal(t, linear.Vacate, op.Kind)
		require.Equal(t, linear.Unknown, op.Outcome)
		require.Equal(t, linear.Process(node, first), op.Owner)
	}
}

// answers is an engine that answers proposals in this order.
type answers struct {
	process
	errs *[]error
}

func (answers) View() cluster.View { return cluster.View{} }

func (a answers) Propose(context.Context, fsm.Proposal) (cluster.Commit, error) {
	err := (*a.errs)[0]
	*a.errs = (*a.errs)[1:]
	return cluster.Commit{Result: fsm.Result{Epoch: 10}}, err
}

// A refusal is certain of its own attempt only: what the request became is what
// the last attempt was told.
func TestRequestIsAskedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		errs []error
		want linear.Outcome
	}{
		"refused":                            {[]error{cluster.ErrNoQuorum}, linear.Refused},
		"refused twice":                      {[]error{cluster.ErrNoQuorum, cluster.ErrNoQuorum}, linear.Unknown},
		"refused, then without an answer":    {[]error{cluster.ErrNoQuorum, cluster.ErrTimeout}, linear.Unknown},
		"refused, then done":                 {[]error{cluster.ErrNoQuorum, nil}, linear.Done},
		"without an answer, then refused":    {[]error{cluster.ErrTimeout, cluster.ErrNoQuorum}, linear.Unknown},
		"done, then refused":                 {[]error{nil, cluster.ErrNoQuorum}, linear.Done},
		"refused, unanswered, refused again": {[]error{cluster.ErrNoQuorum, cluster.ErrTimeout, cluster.ErrNoQuorum}, linear.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			var rec linear.Recorder
			engine := rec.Watch(answers{errs: &c.errs})
			p := fsm.Proposal{Request: fsm.RequestID{15: 1}, Command: fsm.BumpEpoch{Role: fsm.SchedulerLeader, ExpectedEpoch: 9}}
			for range len(c.errs) {
				_, _ = engine.Propose(t.Context(), p)
			}
			ops := rec.Grants()
			require.Len(t, ops, 1)
			require.Equal(t, c.want, ops[0].Outcome)
		})
	}
}
