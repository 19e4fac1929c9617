// Loops that fail: the role ends where PostgreSQL is away, although its epoch is as good as ever.

package scheduler

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster"
)

// A server that is away takes nothing from the epoch: each attempt is known to have
// changed nothing. One that refuses a statement would do so on every node: the role stays.
func TestRoleEndsWithoutPostgres(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(*plane)
		stuck bool
	}{
		"a statement is refused": {func(p *plane) { p.exec(`REVOKE SELECT ON forge.jobs FROM PUBLIC, forgeyard_app`) }, false},
		"no session is taken": {func(p *plane) {
			p.database.Refuse(p)
			// No session is used meanwhile, so that none is lost with a write, and the epoch with it.
			require.Eventually(p, func() bool { ok, since := p.store.Writable(); return !ok && since > outage }, soon, 10*time.Millisecond)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t, Config{Tick: 200 * time.Millisecond})
			g := p.lead()
			c.fault(p)
			ended := make(chan error, 1)
			loops := p.Spec().Loops
			upkeep := loops[slices.IndexFunc(loops, func(l actors.Loop) bool { return l.Name == "upkeep" })]
			go func() { ended <- upkeep.Run(g.Context(), g) }()
			var err error
			select {
			case err = <-ended:
			case <-time.After(soon):
			}
			require.ErrorContains(t, err, "upkeep: ")
			if c.stuck {
				require.ErrorContains(t, err, "PostgreSQL could not be written to for")
			} else {
				require.NotContains(t, err.Error(), "could not be written")
			}
			require.Equal(t, cluster.GuardActive, g.State(), "nothing was wrong with the epoch")
		})
	}
}
