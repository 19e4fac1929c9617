// Taking a fence over from owners that do not know it: live, paused, cut off.

package store

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
)

// writers keep inserting under one authority until they are refused.
type writers struct {
	group   sync.WaitGroup
	mu      sync.Mutex
	results map[Outcome]int
	acked   []string
}

func startWriters(ctx context.Context, s *Store, a authority, n int) *writers {
	w := &writers{results: map[Outcome]int{}}
	for i := range n {
		w.group.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				note := fmt.Sprintf("w%d-%d", i, k)
				err := s.sendFenced(ctx, s.fenced, a, still, insert(note))
				w.mu.Lock()
				w.results[Classify(err)]++
				if err == nil {
					w.acked = append(w.acked, note)
				}
				w.mu.Unlock()
				if err != nil && !Retryable(err) {
					return
				}
			}
		})
	}
	return w
}

// Raising under 32 live writers of the old epoch is bounded, and after it not one more of their rows appears.
func TestDoubleRunRaiseUnderLiveStaleWriters(t *testing.T) {
	const n = 32
	db := newDatabase(t)
	s := open(t, db, func(c *Config) { c.FencedConns = n })
	require.NoError(t, s.raise(t.Context(), at(5, "old")))
	w := startWriters(t.Context(), s, at(5, "old"), n)
	require.Eventually(t, func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.results[Applied] > 10*n }, 30*time.Second, time.Millisecond)

	next := open(t, db, func(c *Config) { c.Cluster = s.cfg.Cluster })
	start := time.Now()
	require.NoError(t, next.raise(t.Context(), at(6, "new")))
	took := time.Since(start)
	t.Logf("raise under %d writers took %s", n, took)
	require.Less(t, took, 5*150*time.Millisecond)

	require.NoError(t, next.sendFenced(t.Context(), next.fenced, at(6, "new"), still, insert("first of the new epoch")))
	w.group.Wait()
	require.Zero(t, one[int](t, db, "SELECT count(*) FROM work WHERE epoch = 5 AND seq > (SELECT min(seq) FROM work WHERE epoch = 6)"))
	require.Equal(t, len(w.acked), one[int](t, db, "SELECT count(*) FROM work WHERE note = ANY($1)", w.acked), "what was acknowledged is there")
	require.Equal(t, n, w.results[Lost]+w.results[Unknown], "every writer was refused: %v", w.results)
	require.Positive(t, w.results[Lost])
}

// A write that was sent before a takeover and waits for it is refused: the fence is read after its lock was granted.
func TestWriteThatWaitsForATakeover(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db)
	require.NoError(t, s.raise(t.Context(), at(5, "old")))
	takeover, err := session(t, db.App).Begin(t.Context())
	require.NoError(t, err)
	_, err = takeover.Exec(t.Context(), "SELECT coordination.raise_fence(1::smallint, 1, 6, 'new', 'new-1')")
	require.NoError(t, err)
	written := make(chan error, 1)
	go func() { written <- s.sendFenced(t.Context(), s.fenced, at(5, "old"), still, insert("late")) }()
	require.Eventually(t, func() bool {
		return one[bool](t, db, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory')")
	}, waitBound, pollEvery, "the write waits for the takeover")
	require.NoError(t, takeover.Commit(t.Context()))
	err = <-written
	require.Equal(t, Lost, Classify(err), "the write ended with %v", err)
	require.Zero(t, one[int](t, db, "SELECT count(*) FROM work"))
}

// A paused owner: its transaction is open, its fence was good, it sleeps. The
// takeover ends its session, and its late commit fails.
func TestRaiseEndsAPausedHolder(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db)
	require.NoError(t, s.raise(t.Context(), at(5, "old")))
	paused := session(t, db.App)
	tx, err := paused.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT coordination.fence(1::smallint, 1, 5)")
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "INSERT INTO work (note) VALUES ('late')")
	require.NoError(t, err)

	start := time.Now()
	require.NoError(t, s.raise(t.Context(), at(6, "new")))
	t.Logf("raise past a paused holder took %s", time.Since(start))
	require.Less(t, time.Since(start), 5*200*time.Millisecond)
	err = tx.Commit(t.Context())
	require.Error(t, err)
	require.Contains(t, []Outcome{Unknown, NotApplied}, Classify(err), "whether the server closed the session before the commit was sent: %v", err)
	require.Zero(t, one[int](t, db, "SELECT count(*) FROM work"))
}

// A stale raise must not end the sessions of the owner that is in the right.
func TestStaleRaiseHarmsNobody(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db)
	require.NoError(t, s.raise(t.Context(), at(6, "new")))
	c := session(t, db.App)
	tx, err := c.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT coordination.fence(1::smallint, 1, 6)")
	require.NoError(t, err)
	require.Equal(t, "FY003", state(s.raise(t.Context(), at(5, "old"))))
	require.NoError(t, s.raise(t.Context(), at(6, "new")), "nor a repeated one of its own")
	_, err = tx.Exec(t.Context(), "INSERT INTO work (note) VALUES ('good')")
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
}

// Holders of another role's fence, of another database, and other advisory locks are left alone.
func TestRaiseEndsOnlyItsOwnRole(t *testing.T) {
	db, other := newDatabase(t), newDatabase(t)
	s, so := open(t, db), open(t, other)
	two := at(5, "old")
	two.role = 2
	require.NoError(t, s.raise(t.Context(), two))
	require.NoError(t, s.raise(t.Context(), at(5, "old")))
	require.NoError(t, so.raise(t.Context(), at(5, "old")))
	hold := func(dsn, sql string) pgx.Tx {
		tx, err := session(t, dsn).Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), sql)
		require.NoError(t, err)
		return tx
	}
	bystanders := []pgx.Tx{
		hold(db.App, "SELECT coordination.fence(2::smallint, 1, 5)"),
		hold(other.App, "SELECT coordination.fence(1::smallint, 1, 5)"),
		hold(db.App, "SELECT pg_advisory_xact_lock_shared(((1180237825::bigint) << 32) + 1)"),
	}
	hold(db.App, "SELECT coordination.fence(1::smallint, 1, 5)") // forces the raise to end sessions
	require.NoError(t, s.raise(t.Context(), at(6, "new")))
	for i, tx := range bystanders {
		require.NoError(t, tx.Commit(t.Context()), "bystander %d", i)
	}
}

// The committed epoch is behind the database: Raft state was lost, or a second
// fleet is at work. The role must stay unassigned, so the error is final and
// not FENCED, and the fence is not moved.
func TestRaiseBelowTheDatabase(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db)
	require.NoError(t, s.raise(t.Context(), at(50, "elsewhere")))
	h := newHolder(t)
	g := h.granted(t, 3)
	err := s.RaiseFence(t.Context(), g)
	require.ErrorIs(t, err, ErrDatabaseAhead)
	require.NotErrorIs(t, err, cluster.ErrFenced)
	require.False(t, cluster.KindOf(err).Retryable())
	require.EqualValues(t, 50, one[int64](t, db, "SELECT epoch FROM coordination.fence"))

	// The same refusal is an ordinary FENCED when the view moves on meanwhile.
	g = h.granted(t, 4)
	moved := time.AfterFunc(50*time.Millisecond, h.vacate)
	defer moved.Stop()
	err = s.RaiseFence(t.Context(), g)
	require.ErrorIs(t, err, cluster.ErrFenced)
	require.NotErrorIs(t, err, ErrDatabaseAhead)
}

// A raise that had no success in its time says what the server answered, and not
// that the last attempt was cut short.
func TestRaiseSaysWhatTheServerAnswered(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db)
	g := newHolder(t).granted(t, 1)
	db.Refuse(t)
	require.ErrorContains(t, s.RaiseFence(t.Context(), g), "permission denied for database")
}
