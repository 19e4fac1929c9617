// Logs: an attempt's output as compressed chunks in the store and rows that say where each belongs.

package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/klauspost/compress/zstd"
)

// Bounds of a log, in bytes before compression.
const (
	MaxChunk = 256 << 10
	maxFrame = MaxChunk + 4<<10 // of a chunk that does not compress
	maxLog   = math.MaxInt64 - MaxChunk
)

// Database is what logs and collection need of the store.
type Database interface {
	// Batch runs what fill queues as one transaction; see store.Store.
	Batch(ctx context.Context, fill func(*pgx.Batch)) error
}

// Logs appends to and reads the logs of attempts. Any daemon may do either.
type Logs struct {
	store Store
	db    Database
	enc   *zstd.Encoder
	dec   *zstd.Decoder
}

// NewLogs makes the logs of one process.
func NewLogs(s Store, db Database) (*Logs, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(MaxChunk))
	if err != nil {
		return nil, fmt.Errorf("logs: %w", err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(MaxChunk))
	if err != nil {
		return nil, fmt.Errorf("logs: %w", err)
	}
	return &Logs{store: s, db: db, enc: enc, dec: dec}, nil
}

// Close frees the codec; no call may follow.
func (l *Logs) Close() { l.dec.Close() }

// Place is where a chunk belongs.
type Place struct {
	Lease string // the lease id
	Agent string // the certificate's id of the agent that appends; must be the lease's
	Start int64  // offset of the first byte in the log
}

// GapError is ErrGap with the offset from which the log must be sent.
type GapError struct{ End int64 }

func (e *GapError) Error() string { return e.Unwrap().Error() }

// Unwrap is the fault that a client sees.
func (e *GapError) Unwrap() error {
	return ErrGap.Because("bytes before this chunk are missing: the log ends at %d", e.End)
}

// Append stores raw at its place and returns the log's end, from which the next
// chunk must start. What is stored already, whole or in part, is not stored
// again: repeating an Append is harmless. A *GapError tells the log's end when
// bytes before the chunk are missing. After a Retryable error nothing is lost
// that the caller still has: repeat it. A log that is final keeps its end.
func (l *Logs) Append(ctx context.Context, at Place, raw []byte) (end int64, err error) {
	if len(raw) == 0 || len(raw) > MaxChunk || at.Start < 0 || at.Start > maxLog {
		return 0, ErrChunk.Because("a chunk of %d bytes at %d; at most %d are taken", len(raw), at.Start, MaxChunk)
	}
	start, part := at.Start, raw
	for range 3 { // an end that another daemon moves meanwhile is read again
		stored, err := l.append(ctx, at, start, part)
		if err != nil {
			return 0, err
		}
		if stored {
			return start + int64(len(part)), nil
		}
		s, err := l.state(ctx, at)
		if err != nil {
			return 0, err
		}
		skip := s.end - at.Start
		switch {
		case skip < 0 && !s.final:
			return s.end, &GapError{End: s.end}
		case s.final, skip >= int64(len(raw)):
			return s.end, nil
		}
		start, part = s.end, raw[skip:]
	}
	return 0, ErrUnavailable.Wrap(nil, "the log of lease %s is being appended to by others", at.Lease)
}

// append puts the bytes into the store first: a row never names a blob that is not there.
func (l *Logs) append(ctx context.Context, at Place, start int64, raw []byte) (stored bool, err error) {
	frame := l.enc.EncodeAll(raw, nil)
	b, err := l.store.Put(ctx, bytes.NewReader(frame), Want{Digest: DigestOf(frame)})
	if err != nil {
		return false, fmt.Errorf("append to the log of lease %s: %w", at.Lease, err)
	}
	err = l.db.Batch(ctx, func(q *pgx.Batch) {
		q.Queue(appendSQL, at.Lease, at.Agent, start, len(raw), b.Digest.Bytes()).QueryRow(func(row pgx.Row) error {
			return row.Scan(&stored)
		})
	})
	if err != nil {
		return false, fmt.Errorf("append to the log of lease %s: %w", at.Lease, err)
	}
	return stored, nil
}

// Finish says that the log ends at at.Start and no more will come. It answers a
// *GapError while bytes before that are missing.
func (l *Logs) Finish(ctx context.Context, at Place) error {
	var s logState
	err := l.db.Batch(ctx, func(q *pgx.Batch) {
		q.Queue(finishSQL, at.Lease, at.Agent, at.Start)
		q.Queue(stateSQL, at.Lease, at.Agent).QueryRow(s.scan)
	})
	switch {
	case err != nil:
		return fmt.Errorf("finish the log of lease %s: %w", at.Lease, err)
	case !s.found:
		return ErrNoLease.Because("agent %q has no lease %q", at.Agent, at.Lease)
	case !s.final:
		return &GapError{End: s.end}
	}
	return nil
}

// logState is how far a log has come.
type logState struct {
	found, final, expired bool
	end                   int64
}

func (s *logState) scan(row pgx.Row) error {
	err := row.Scan(&s.end, &s.final, &s.expired)
	s.found = err == nil
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

func (l *Logs) state(ctx context.Context, at Place) (s logState, err error) {
	err = l.db.Batch(ctx, func(q *pgx.Batch) { q.Queue(stateSQL, at.Lease, at.Agent).QueryRow(s.scan) })
	if err != nil {
		return s, fmt.Errorf("read the log of lease %s: %w", at.Lease, err)
	}
	if !s.found {
		return s, ErrNoLease.Because("agent %q has no lease %q", at.Agent, at.Lease)
	}
	return s, nil
}
