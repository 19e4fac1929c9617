// A daemon's end of a log stream: what it takes of an attempt's output, however an agent behaves.

package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/roles/artifact"
)

const (
	// MaxLog bounds what daemons store of one attempt's log, in bytes: the limit
	// that agents keep, and room for the line that says so.
	MaxLog = DefaultLogLimit + 4<<10

	logsAfterEnd = 10 * time.Minute // how long after its lease ended an agent may still send a log

	smallChunk  = MaxData / 16                   // bytes; a chunk below it is small
	smallBurst  = 64                             // small chunks in a row that are taken at once,
	smallEvery  = logEvery / 2                   // and then one in this time: twice as often as agents send them
	smallCredit = smallBurst * int64(smallEvery) // what may be saved up
)

// ErrLogFull (FY-LOG-004): an agent sends more of a log than MaxLog.
var ErrLogFull = &access.Fault{Status: 413, Code: "FY-LOG-004", Message: "the log has reached its limit"}

const logSQL = `
SELECT log_bytes FROM forge.leases
 WHERE id = $1::text::uuid AND agent_id = $2 AND (ended_at IS NULL OR ended_at > coordination.clock() - $3::interval)`

// log appends to an attempt's log until the agent says that it is whole, or
// ends the stream. It may do so for some time after its lease has ended.
func (t *Transfers) log(ctx context.Context, agent string, l Log, s TransferStream) error {
	if !validLease(l.Lease) {
		return ErrTransferDenied.Because("no such lease")
	}
	at := artifact.Place{Lease: l.Lease, Agent: agent}
	var err error
	if at.Start, err = t.logEnd(ctx, at); err != nil {
		return err
	}
	if err := bounded(ctx, s, Frame{Ready: &Ready{Offset: at.Start}}); err != nil {
		return err
	}
	pace := newPacer()
	for {
		f, err := s.Receive(ctx) // a quiet job's stream may stay open as long as its link
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return &streamError{err}
		case f.End != nil:
			at.Start = f.End.Size
			if err := t.cfg.Logs.Finish(ctx, at); err != nil {
				return err
			}
			t.cfg.Logged()
			return bounded(ctx, s, Frame{Done: &Done{}})
		case f.Chunk == nil || len(f.Chunk.Data) == 0:
			return &protocolError{what: "neither a chunk nor the log's end"}
		}
		if err := pace.wait(ctx, len(f.Chunk.Data)); err != nil {
			return &streamError{err}
		}
		at.Start = f.Chunk.Offset
		if end := at.Start + int64(len(f.Chunk.Data)); at.Start > MaxLog || end > MaxLog {
			return ErrLogFull.Because("the log of lease %s would have %d bytes, more than %d", l.Lease, end, int64(MaxLog))
		}
		end, err := t.cfg.Logs.Append(ctx, at, f.Chunk.Data)
		if err != nil {
			return err
		}
		t.meter.logBytes.Add(float64(len(f.Chunk.Data)))
		t.cfg.Logged()
		if err := bounded(ctx, s, Frame{Ack: &Ack{Offset: end}}); err != nil {
			return err
		}
	}
}

func (t *Transfers) logEnd(ctx context.Context, at artifact.Place) (end int64, err error) {
	ctx, done := context.WithTimeout(ctx, transferDBWait)
	defer done()
	err = t.cfg.Store.Batch(ctx, func(b *pgx.Batch) {
		b.Queue(logSQL, at.Lease, at.Agent, logsAfterEnd).QueryRow(func(row pgx.Row) error { return row.Scan(&end) })
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, ErrTransferDenied.Because("no lease of this agent takes a log under this id any more")
	}
	if err != nil {
		return 0, fmt.Errorf("read the log's end: %w", err)
	}
	return end, nil
}

// pacer holds back a stream of small chunks: each costs a row and a blob however
// small it is, and MaxLog alone would let an agent make millions of them.
type pacer struct {
	saved int64 // nanoseconds
	at    time.Time
}

func newPacer() *pacer { return &pacer{saved: smallCredit, at: time.Now()} }

// wait returns when a chunk of n bytes may be taken; an error only with ctx.
func (p *pacer) wait(ctx context.Context, n int) error {
	if n >= smallChunk {
		return nil
	}
	now := time.Now()
	p.saved = min(smallCredit, p.saved+int64(now.Sub(p.at))) - int64(smallEvery)
	p.at = now
	if p.saved >= 0 {
		return nil
	}
	return pause(ctx, time.Duration(-p.saved))
}
