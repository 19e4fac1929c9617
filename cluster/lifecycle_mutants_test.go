// Faults planted into the role lifecycle, each of which the explorer must find.

package cluster

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExplorerCatchesMutants plants one fault at a time into the function.
func TestExplorerCatchesMutants(t *testing.T) {
	dropping := func(kind outputKind) stepFunc {
		return func(s lifecycle, e event) (lifecycle, []output) {
			next, out := step(s, e)
			return next, slices.DeleteFunc(out, func(o output) bool { return o.kind == kind })
		}
	}
	mutants := map[string]struct {
		step stepFunc
		want string
	}{
		"mints before the old tree has ended": {func(s lifecycle, e event) (lifecycle, []output) {
			if s.phase == GuardRevoked && e.kind == evView {
				s.tree, s.phase, s.taken = grant{}, GuardNone, false
			}
			return step(s, e)
		}, "minted while tree"},
		"mints while unconfirmed": {func(s lifecycle, e event) (lifecycle, []output) {
			was := s.confirmed
			s.confirmed = true
			next, out := step(s, e)
			if e.kind != evConfirmed && e.kind != evUnconfirmed {
				next.confirmed = was
			}
			return next, out
		}, "unconfirmed view"},
		"mints a spent epoch again": {func(s lifecycle, e event) (lifecycle, []output) {
			if s.phase == GuardNone && s.spent() && e.kind == evConfirmed {
				s.floor--
			}
			return step(s, e)
		}, "minted an epoch again"},
		"poisons before it revokes": {func(s lifecycle, e event) (lifecycle, []output) {
			next, out := step(s, e)
			for i := range out {
				if out[i].kind == outPoison {
					out[i], out[i-1] = out[i-1], out[i]
				}
			}
			return next, out
		}, "poisoned before"},
		"proposes while the guard is in use": {func(s lifecycle, e event) (lifecycle, []output) {
			next, out := step(s, e)
			if e.kind == evActive && next.phase == GuardActive {
				out = append(out, output{kind: outPropose, epoch: next.tree.epoch, debt: debt{kind: debtBump}})
			}
			return next, out
		}, "not spent"},
		"never proposes": {dropping(outPropose), "no way out"},
		"does not retry": {dropping(outArmRetry), "no way out"},
		"never poisons":  {dropping(outPoison), "minted while tree"},
		"waits for a tree that nobody started": {func(s lifecycle, e event) (lifecycle, []output) {
			if s.live() {
				s.taken = true
			}
			return step(s, e)
		}, "exit for a tree that has ended"},
		"insists on a bump that is refused": {func(s lifecycle, e event) (lifecycle, []output) {
			if e.kind == evRefused {
				e.kind = evUncertain
			}
			return step(s, e)
		}, "no way out"},
		"forgets the epoch that a cut has spent": {func(s lifecycle, e event) (lifecycle, []output) {
			next, out := step(s, e)
			if e.kind == evUnconfirmed {
				out = slices.DeleteFunc(out, func(o output) bool { return o.kind == outPropose })
			}
			return next, out
		}, "no way out"},
	}
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			_, err := explorer{step: m.step}.check()
			require.ErrorContains(t, err, m.want)
		})
	}
}
