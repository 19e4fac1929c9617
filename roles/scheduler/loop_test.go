// Loops that can do nothing: the role must end although its epoch is as good as ever.

package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
)

// A server that is away, or refuses what it is asked, takes nothing from the epoch:
// each attempt is known to have changed nothing. The loop says after its patience
// that it is stuck, and the actor system gives the role up.
func TestLoopThatCanDoNothingIsStuck(t *testing.T) {
	for name, away := range map[string]func(*plane){
		"a statement is refused": func(p *plane) { p.exec(`REVOKE SELECT ON forge.jobs FROM PUBLIC, forgeyard_app`) },
		"no session is taken": func(p *plane) {
			p.exec(fmt.Sprintf(`REVOKE CONNECT ON DATABASE %s FROM PUBLIC, forgeyard_app`, pgx.Identifier{p.database.Name}.Sanitize()))
			p.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()`, p.database.Name)
			<-time.After(2 * time.Second) // a session that was used within a second is used without a look at it
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t, Config{})
			g := p.lead()
			away(p)
			ended := make(chan error, 1)
			began := time.Now()
			go func() { ended <- p.Spec().Loops[1].Run(g.Context(), g) }()
			select {
			case err := <-ended:
				require.ErrorContains(t, err, "upkeep: nothing but failures for")
				require.GreaterOrEqual(t, time.Since(began), patience)
			case <-time.After(soon):
				require.FailNow(t, "the loop goes on")
			}
			require.Equal(t, cluster.GuardActive, g.State(), "nothing was wrong with the epoch")
		})
	}
}
