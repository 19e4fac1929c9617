// Reader: pages of the outbox in the order in which every reader sees them.

package events

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/migrations/mutant"
)

// Database is what the reader needs of roles/store: one batch is one implicit
// transaction, and what its callbacks read counts only after it returned nil.
type Database interface {
	Batch(ctx context.Context, fill func(*pgx.Batch)) error
}

// Event is one thing that happened, as its transaction wrote it.
type Event struct {
	Cursor Cursor
	At     time.Time
	Kind   string // such as "job.leased"
	Run    string // "" when it is of no run
	Job    string
	Data   json.RawMessage
}

// Page is a piece of the outbox.
type Page struct {
	Events []Event
	Next   Cursor // continue after this; it also covers what the filter left out
	More   bool   // the page is full, or transactions that began before its end have not ended
	Gap    bool   // retention, or another history of the database, has taken what should follow: Events is empty
}

// Only rows of transactions older than every running one are taken: nothing
// that commits later can come to lie before them. The rest waits.
const readSQL = `
SELECT o.xid::text::bigint, o.seq, o.at, o.kind, coalesce(o.run_id, ''), coalesce(o.job_id, ''), o.data
  FROM forge.outbox o
 WHERE (o.xid, o.seq) > ($1::text::xid8, $2::bigint) AND o.xid < pg_snapshot_xmin(pg_current_snapshot())`

// Two statements, so that each has its plan: a run's events are found by its index.
const (
	readAllSQL = readSQL + ` ORDER BY o.xid, o.seq LIMIT $3`
	readRunSQL = readSQL + ` AND o.run_id = $4 ORDER BY o.xid, o.seq LIMIT $3`
)

const headSQL = `
SELECT coordination.system_identifier(), coordination.timeline(), pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
       EXISTS (SELECT FROM forge.outbox o WHERE o.xid >= pg_snapshot_xmin(pg_current_snapshot()))`

const floorSQL = `SELECT xid::text::bigint, seq FROM forge.outbox_floor`

// place is where the outbox begins and ends for a reader at this moment.
type place struct {
	head    Cursor // everything up to here is decided
	floor   Cursor // everything up to here may be gone
	pending bool   // there are rows beyond the head
}

func queueHead(b *pgx.Batch, p *place) {
	b.Queue(headSQL).QueryRow(func(row pgx.Row) error {
		var xmin int64
		err := row.Scan(&p.head.System, &p.head.Timeline, &xmin, &p.pending)
		p.head.XID, p.head.Seq = uint64(xmin-1), math.MaxInt64
		return err
	})
}

// queueFloor comes after queueHead.
func queueFloor(b *pgx.Batch, p *place) {
	b.Queue(floorSQL).QueryRow(func(row pgx.Row) error {
		var xid int64
		err := row.Scan(&xid, &p.floor.Seq)
		p.floor.System, p.floor.Timeline, p.floor.XID = p.head.System, p.head.Timeline, uint64(xid)
		return err
	})
}

// Head is where a reader starts that wants only what happens from now on.
func Head(ctx context.Context, db Database) (Cursor, error) {
	p, err := where(ctx, db)
	return p.head, err
}

// Floor is where a reader starts that wants everything that is still there.
func Floor(ctx context.Context, db Database) (Cursor, error) {
	p, err := where(ctx, db)
	return p.floor, err
}

func where(ctx context.Context, db Database) (place, error) {
	var p place
	err := db.Batch(ctx, func(b *pgx.Batch) {
		queueHead(b, &p)
		queueFloor(b, &p)
	})
	if err != nil {
		return place{}, fmt.Errorf("read the outbox: %w", err)
	}
	return p, nil
}

// Read returns at most limit events after a cursor, of one run or, with "", of
// all. The head is read first, for a row that appears meanwhile lies beyond it and
// is taken the next time; the floor last, for what retention takes meanwhile is
// missing among the rows and must be said.
func Read(ctx context.Context, db Database, after Cursor, run string, limit int) (Page, error) {
	var at place
	var found []Event
	sql, args := readAllSQL, []any{fmt.Sprint(after.XID), after.Seq, limit}
	if run != "" {
		sql, args = readRunSQL, append(args, run)
	}
	err := db.Batch(ctx, func(b *pgx.Batch) {
		queueHead(b, &at)
		b.Queue(mutant.SQL(sql), args...).Query(func(rows pgx.Rows) (err error) {
			found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) {
				var xid int64
				err = row.Scan(&xid, &e.Cursor.Seq, &e.At, &e.Kind, &e.Run, &e.Job, &e.Data)
				e.Cursor.XID = uint64(xid)
				return e, err
			})
			return err
		})
		queueFloor(b, &at)
	})
	if err != nil {
		return Page{}, fmt.Errorf("read the outbox: %w", err)
	}
	if !after.follows(at.head) || after.before(at.floor) {
		return Page{Next: at.head, Gap: true}, nil
	}
	for i := range found {
		found[i].Cursor.System, found[i].Cursor.Timeline = at.head.System, at.head.Timeline
	}
	page := Page{Events: found, Next: after, More: at.pending}
	if len(found) > 0 {
		page.Next = found[len(found)-1].Cursor
	}
	if len(found) == limit {
		page.More = true
	} else if page.Next.before(at.head) {
		page.Next = at.head
	}
	return page, nil
}
