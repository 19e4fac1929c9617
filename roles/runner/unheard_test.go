// Transactions that commit while the daemon that sent them hears nothing of it.

package runner_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// unheard commits every batch. Of each kind of batch, told by its statements, it
// loses the first replies.
type unheard struct {
	runner.Database
	each int // replies lost of each kind

	mu   sync.Mutex
	lost map[uint64]int
}

func (u *unheard) Batch(ctx context.Context, fill func(*pgx.Batch)) error {
	kind := fnv.New64a()
	err := u.Database.Batch(ctx, func(b *pgx.Batch) {
		fill(b)
		for _, q := range b.QueuedQueries {
			_, _ = fmt.Fprintln(kind, q.SQL) // never fails
		}
	})
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lost[kind.Sum64()] == u.each {
		return nil
	}
	u.lost[kind.Sum64()]++
	return errors.New("the reply of a commit was lost")
}

// TestUnheardCommits: whatever a daemon did not hear of, a hello, orders, an
// acceptance, a heartbeat, an end, the agent goes on with it and none of its
// slots stays taken: each job runs once, in its first attempt.
func TestUnheardCommits(t *testing.T) {
	for _, each := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d of each kind", each), func(t *testing.T) {
			p := newPlane(t)
			db := &unheard{Database: p.store, each: each, lost: map[uint64]int{}}
			p.daemonOver("d1", db)
			g := newGate()
			a := p.agent("a", t.TempDir(), g, "d1")
			const slots = 4 // of an agent of this fixture
			for round := range 3 {
				g.shut()
				var leases []string
				for range slots {
					leases = append(leases, p.lease("a", nil))
				}
				for _, l := range leases {
					require.Eventually(t, func() bool { return g.starts(l) == 1 }, soon, 5*time.Millisecond, "round %d: a lease never started", round)
				}
				g.let()
				for _, l := range leases {
					p.becomes(l, "done")
				}
			}
			require.Len(t, entries(t, a.dir, runner.EntryStart), 3*slots)
			require.Equal(t, 3*slots, one[int](p, `SELECT count(*) FROM forge.jobs WHERE state = 'succeeded' AND attempt = 1`))
			db.mu.Lock()
			defer db.mu.Unlock()
			require.GreaterOrEqual(t, len(db.lost), 5, "kinds of batches whose reply was lost")
		})
	}
}
