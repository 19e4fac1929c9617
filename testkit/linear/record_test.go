// What the recorder notes by itself.

package linear_test

import (
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
