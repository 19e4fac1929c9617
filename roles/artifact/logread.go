// Reading a log: the rows in order, their chunks from the store.

package artifact

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Tail is where a read of a log ended.
type Tail struct {
	End      int64 // offset of the next byte; read on from there
	Complete bool  // the agent has finished the log and all of it was read
	Expired  bool  // the lease has expired: more comes only if its agent returns
}

// readPage is how many chunks are looked up at a time.
const readPage = 64

// chunk is one row of a log.
type chunk struct {
	start  int64
	length int
	digest []byte
}

// Read calls fn with the bytes of a lease's log from an offset to its present
// end, in order, each piece at most MaxChunk bytes and valid during the call.
// Errors: ErrNoLease, those of the store and the database, and fn's unchanged;
// Tail.End tells how far fn got.
func (l *Logs) Read(ctx context.Context, lease string, from int64, fn func(start int64, raw []byte) error) (Tail, error) {
	tail := Tail{End: max(0, from)}
	for {
		s, page, err := l.page(ctx, lease, tail.End)
		if err != nil {
			return tail, err
		}
		for _, c := range page {
			raw, err := l.chunk(ctx, c)
			if err != nil {
				return tail, fmt.Errorf("read the log of lease %s at %d: %w", lease, c.start, err)
			}
			skip := max(0, tail.End-c.start)
			if err := fn(c.start+skip, raw[skip:]); err != nil {
				return tail, err
			}
			tail.End = c.start + int64(c.length)
		}
		if len(page) < readPage {
			tail.Complete, tail.Expired = s.final && tail.End >= s.end, s.expired
			return tail, nil
		}
	}
}

// page reads the log's state before its rows: what the state promises, they have.
func (l *Logs) page(ctx context.Context, lease string, from int64) (s logState, page []chunk, err error) {
	err = l.db.Batch(ctx, func(q *pgx.Batch) {
		q.Queue(readStateSQL, lease).QueryRow(s.scan)
		q.Queue(chunksSQL, lease, from, readPage).Query(func(rows pgx.Rows) (err error) {
			page, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c chunk, err error) {
				return c, row.Scan(&c.start, &c.length, &c.digest)
			})
			return err
		})
	})
	switch {
	case err != nil:
		return s, nil, fmt.Errorf("read the log of lease %s: %w", lease, err)
	case !s.found:
		return s, nil, ErrNoLease.Because("no lease %q", lease)
	}
	return s, page, nil
}

func (l *Logs) chunk(ctx context.Context, c chunk) ([]byte, error) {
	d, err := DigestFromBytes(c.digest)
	if err != nil {
		return nil, err
	}
	frame, err := ReadAll(ctx, l.store, d, maxFrame)
	if err != nil {
		return nil, err
	}
	raw, err := l.dec.DecodeAll(frame, nil)
	if err != nil {
		return nil, ErrCorrupt.Wrap(err, "the log chunk %s cannot be decompressed", d)
	}
	if len(raw) != c.length {
		return nil, ErrCorrupt.Wrap(nil, "the log chunk %s has %d bytes, not the recorded %d", d, len(raw), c.length)
	}
	return raw, nil
}
