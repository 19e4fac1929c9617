// What must hold for the traces of every fleet, whatever was done to it.

package bubble

import (
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/order"
)

// requireOrder checks every incarnation's own trace, and that no epoch was ever
// granted to two processes, so no two trees of an epoch can have been active.
func (f *Fleet) requireOrder() {
	f.t.Helper()
	type grant struct {
		role  fsm.Role
		epoch fsm.Epoch
	}
	granted := map[grant]fsm.IncarnationID{}
	for _, n := range slices.Concat(f.Nodes, f.lost) {
		for _, r := range n.traces {
			order.Require(f.t, r.Events())
			for _, e := range r.Events() {
				if e.Kind == trace.Grant {
					require.NotContains(f.t, granted, grant{e.Role, e.Epoch}, "granted twice")
					granted[grant{e.Role, e.Epoch}] = e.Incarnation
				}
			}
		}
	}
}

// count says how often something happened to a role's epoch, fleet-wide.
func (f *Fleet) count(role fsm.Role, epoch fsm.Epoch, kinds ...trace.Kind) (count int) {
	for _, n := range f.Nodes {
		for _, r := range n.traces {
			for _, e := range r.Of(role, epoch) {
				for _, k := range kinds {
					if e.Kind == k {
						count++
					}
				}
			}
		}
	}
	return count
}

// Traces are the traces of all incarnations, by node and in the order of their starts.
func (f *Fleet) Traces() map[string][][]trace.Event {
	all := map[string][][]trace.Event{}
	for _, n := range slices.Concat(f.Nodes, f.lost) {
		for _, r := range n.traces {
			all[n.Name] = append(all[n.Name], r.Events())
		}
	}
	return all
}
