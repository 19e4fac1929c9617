// Every interleaving of a fenced write with a takeover, at each statement boundary, and the three
// forms of fence that look right and are not: each must be caught.

package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

// variant is one way to write a fence.
type variant struct {
	begin string // of the writer's transaction
	fence string // its fence statement
}

var shipped = variant{begin: "BEGIN", fence: "SELECT coordination.fence(1::smallint, 1, 5)"}

// checked is the body of a planted fence: how is the epoch read, under which lock?
func checked(read string) string {
	return "DO $$ BEGIN " + read + " IF NOT FOUND THEN RAISE EXCEPTION 'fenced' USING ERRCODE = 'FY001'; END IF; END $$"
}

var mutants = map[string]variant{
	"plain read":      {"BEGIN", checked("PERFORM FROM coordination.fence WHERE role = 1 AND generation = 1 AND epoch = 5;")},
	"for key share":   {"BEGIN", checked("PERFORM FROM coordination.fence WHERE role = 1 AND generation = 1 AND epoch = 5 FOR KEY SHARE;")},
	"repeatable read": {"BEGIN ISOLATION LEVEL REPEATABLE READ", checked("PERFORM pg_advisory_xact_lock_shared(1180237825, 1); PERFORM FROM coordination.fence WHERE role = 1 AND generation = 1 AND epoch = 5;")},
}

func TestFenceInterleavings(t *testing.T) {
	t.Parallel()
	require.Empty(t, explore(t, shipped))
}

func TestPlantedFencesAreCaught(t *testing.T) {
	for name, v := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := explore(t, v)
			require.NotEmpty(t, found, "the exploration did not notice a fence that does not hold")
			t.Logf("caught in %d of 70 interleavings, first in %s", len(found), found[0])
		})
	}
}

// explore runs all 70 merges of the writer's four statements and the takeover's
// four, and returns those in which a row of epoch 5 came after one of epoch 6,
// or was committed after the takeover was.
func explore(t *testing.T, v variant) (violated []string) {
	t.Helper()
	db := newDatabase(t)
	s := open(t, db)
	super := session(t, db.Super)
	writer := []string{v.begin, v.fence, "INSERT INTO work (epoch, note) VALUES (5, 'old')", "COMMIT"}
	successor := []string{
		"BEGIN", "SELECT coordination.raise_fence(1::smallint, 1, 6, 'b', 'b-1')", "COMMIT",
		"DO $$ BEGIN PERFORM coordination.fence(1::smallint, 1, 6); INSERT INTO work (epoch, note) VALUES (6, 'new'); END $$",
	}
	old, next := newActor(t, db, super, writer), newActor(t, db, super, successor)
	defer old.close()
	defer next.close()
	for mask := range 1 << (len(writer) + len(successor)) {
		order, ok := merge(uint(mask), len(writer), len(successor))
		if !ok {
			continue
		}
		_, err := super.Exec(t.Context(), "DELETE FROM work; DELETE FROM coordination.fence")
		require.NoError(t, err)
		require.NoError(t, s.raise(t.Context(), at(5, "a")))
		old.reset(t)
		next.reset(t)
		for _, r := range order {
			map[rune]*actor{'w': old, 's': next}[r].step(t)
		}
		for !old.finished() || !next.finished() {
			old.drain(t)
			next.drain(t)
		}
		require.NoError(t, next.failed, "the takeover must succeed in %s", order)
		var late bool
		require.NoError(t, super.QueryRow(t.Context(), "SELECT coalesce(max(seq) FILTER (WHERE epoch = 5) > min(seq) FILTER (WHERE epoch = 6), false) FROM work").Scan(&late))
		if late || old.failed == nil && old.ended[3].After(next.ended[2]) {
			violated = append(violated, order)
		}
	}
	return violated
}

// merge reads a mask as an order of the two sides' steps; false when it does not have the right number of each.
func merge(mask uint, writers, successors int) (string, bool) {
	var b strings.Builder
	for i := range writers + successors {
		b.WriteByte("ws"[mask>>i&1])
	}
	return b.String(), strings.Count(b.String(), "s") == successors
}

// actor runs statements one after another on a session of its own; a statement
// that waits for a lock stays in flight while the other side goes on.
type actor struct {
	dsn      string
	conn     *pgx.Conn
	observer *pgx.Conn // another session, to see whether this one waits for a lock
	steps    []string
	due      int // steps the order has given free
	begun    int
	ended    []time.Time
	inFlight chan error
	failed   error
}

func newActor(t *testing.T, db *pgtest.Database, observer *pgx.Conn, steps []string) *actor {
	t.Helper()
	return &actor{dsn: db.Owner, observer: observer, steps: steps}
}

// reset makes the actor ready for another order: connected, in no transaction, nothing done.
func (a *actor) reset(t *testing.T) {
	t.Helper()
	a.due, a.begun, a.ended, a.failed = 0, 0, nil, nil
	if a.conn != nil {
		if _, err := a.conn.Exec(t.Context(), "ROLLBACK"); err == nil {
			return
		}
		a.close() // the takeover ended it
	}
	var err error
	a.conn, err = pgx.Connect(t.Context(), a.dsn)
	require.NoError(t, err)
}

func (a *actor) close() {
	_ = a.conn.Close(context.Background()) // the takeover may have ended it
}

func (a *actor) finished() bool {
	return a.inFlight == nil && (a.failed != nil || a.begun == len(a.steps))
}

// step frees one more statement and runs what can run.
func (a *actor) step(t *testing.T) {
	a.due++
	a.drain(t)
}

func (a *actor) drain(t *testing.T) {
	t.Helper()
	for a.failed == nil && (a.inFlight != nil || a.begun < a.due) {
		if a.inFlight == nil {
			a.inFlight = make(chan error, 1)
			go func(sql string, done chan<- error) {
				_, err := a.conn.Exec(context.Background(), sql, pgx.QueryExecModeSimpleProtocol)
				done <- err
			}(a.steps[a.begun], a.inFlight)
			a.begun++
		}
		if !a.settle(t) {
			return
		}
	}
}

// settle waits until the statement in flight has ended (true) or waits for a lock (false).
func (a *actor) settle(t *testing.T) bool {
	t.Helper()
	for {
		select {
		case err := <-a.inFlight:
			a.inFlight = nil
			a.failed = err
			a.ended = append(a.ended, time.Now())
			return true
		case <-time.After(2 * time.Millisecond):
		}
		var waits bool
		err := a.observer.QueryRow(t.Context(), "SELECT coalesce(wait_event_type = 'Lock', false) FROM pg_stat_activity WHERE pid = $1", a.conn.PgConn().PID()).Scan(&waits)
		if !errors.Is(err, pgx.ErrNoRows) { // no row: the session was ended, the answer is on its way
			require.NoError(t, err)
		}
		if waits {
			return false
		}
	}
}

func TestMergesAreAll(t *testing.T) {
	seen := map[string]bool{}
	for mask := range 1 << 8 {
		if order, ok := merge(uint(mask), 4, 4); ok {
			seen[order] = true
		}
	}
	require.Len(t, seen, 70, "eight over four")
}
