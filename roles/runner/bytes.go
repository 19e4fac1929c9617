// A daemon's end of the transfer streams: who may move which bytes, and between which ends.

package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/roles/store"
)

// Bounds of what one agent may have under way at one daemon.
const (
	MaxTransfers   = 64      // streams of one agent; logs of its running leases among them
	MaxStored      = 4 << 30 // bytes of one artifact, as stored
	transferPause  = time.Minute
	transferDBWait = 5 * time.Second
)

// The refusals of transfers and artifacts.
var (
	// ErrTransferDenied (FY-RUN-005): the lease is not active, not this agent's, or the blob is none of its inputs.
	ErrTransferDenied = &access.Fault{Status: 403, Code: "FY-RUN-005", Message: "the lease gives no right to these bytes"}
	// ErrTransferBusy (FY-RUN-006): the agent has too many transfers under way.
	ErrTransferBusy = &access.Fault{Status: 429, Code: "FY-RUN-006", Message: "too many transfers of this agent are under way"}
)

// LogStore keeps the logs of attempts; artifact.Logs is one.
type LogStore interface {
	Append(ctx context.Context, at artifact.Place, raw []byte) (end int64, err error)
	Finish(ctx context.Context, at artifact.Place) error
	Read(ctx context.Context, lease string, from int64, fn func(start int64, raw []byte) error) (artifact.Tail, error)
}

// Blobs is what transfers and downloads need of the artifact store.
type Blobs interface {
	Put(ctx context.Context, r io.Reader, want artifact.Want) (artifact.Blob, error)
	Get(ctx context.Context, d artifact.Digest) (io.ReadCloser, int64, error)
	Stat(ctx context.Context, d artifact.Digest) (artifact.Blob, error)
	Now(ctx context.Context) (time.Time, error)
}

// TransfersConfig is everything Transfers use of the outside.
type TransfersConfig struct {
	Store  Database
	Blobs  Blobs
	Logs   LogStore
	Logged func() // called after bytes of a log were stored; must not block; may be nil
	Logger *slog.Logger
}

// Transfers serve the agents' transfer streams. They hold nothing but a count:
// an agent goes on with another daemon wherever it stopped. While the artifact
// store is away they refuse with Retry, and links and leases go on.
type Transfers struct {
	cfg    TransfersConfig
	meter  *transfers
	mu     sync.Mutex
	active map[string]int // streams by agent
}

// NewTransfers makes a daemon's end of transfer streams.
func NewTransfers(cfg TransfersConfig) *Transfers {
	if cfg.Logged == nil {
		cfg.Logged = func() {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Transfers{cfg: cfg, meter: newTransfers(), active: map[string]int{}}
}

// Collectors returns the figures of the transfers.
func (t *Transfers) Collectors() []prometheus.Collector { return t.meter.collectors() }

// ServeTransfer implements TransferServer.
func (t *Transfers) ServeTransfer(ctx context.Context, agent string, open Transfer, s TransferStream) error {
	kind, serve := t.server(open)
	if serve == nil {
		return &protocolError{what: "a transfer without a kind"}
	}
	err := t.admitted(ctx, agent, kind, s, serve)
	result := "ok"
	switch refusal := refusalOf(err); {
	case err == nil:
	case refusal == nil:
		result = "broken" // the agent or its connection ended it
	default:
		result = "refused"
		// The agent learns why; when it cannot be told its stream ends all the same.
		ctx, done := context.WithTimeout(ctx, transferDBWait)
		err = errors.Join(err, s.Send(ctx, Frame{Refused: refusal}))
		done()
	}
	t.meter.total.WithLabelValues(kind, result).Inc()
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return nil
}

type serveFunc func(ctx context.Context, agent string, s TransferStream) error

// admitted serves within the agent's bound; its place is free again however that ends.
func (t *Transfers) admitted(ctx context.Context, agent, kind string, s TransferStream, serve serveFunc) error {
	if err := t.enter(agent); err != nil {
		return err
	}
	defer t.leave(agent)
	active := t.meter.active.WithLabelValues(kind)
	active.Inc()
	defer active.Dec()
	return serve(ctx, agent, s)
}

func (t *Transfers) server(open Transfer) (kind string, serve serveFunc) {
	switch {
	case open.Fetch != nil:
		return "fetch", func(ctx context.Context, agent string, s TransferStream) error {
			return t.fetch(ctx, agent, *open.Fetch, s)
		}
	case open.Store != nil:
		return "store", func(ctx context.Context, agent string, s TransferStream) error {
			return t.store(ctx, agent, *open.Store, s)
		}
	case open.Log != nil:
		return "log", func(ctx context.Context, agent string, s TransferStream) error {
			return t.log(ctx, agent, *open.Log, s)
		}
	}
	return "", nil
}

func (t *Transfers) enter(agent string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.active[agent] >= MaxTransfers {
		return ErrTransferBusy
	}
	t.active[agent]++
	return nil
}

func (t *Transfers) leave(agent string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.active[agent]--; t.active[agent] == 0 {
		delete(t.active, agent)
	}
}

// streamError is a fault of the stream itself: nobody is left to be told.
type streamError struct{ err error }

func (e *streamError) Error() string { return e.err.Error() }
func (e *streamError) Unwrap() error { return e.err }

// refusalOf is what an agent is told of an error; nil when it ended the stream itself.
func refusalOf(err error) *Refused {
	var gone *streamError
	var fault *access.Fault
	var known *cluster.Error
	var pe *protocolError
	switch {
	case err == nil, errors.As(err, &gone):
		return nil
	case errors.As(err, &pe):
		return &Refused{Reason: store.Text(pe.Error(), MaxReason)}
	case errors.Is(err, ErrTransferBusy), errors.Is(err, artifact.ErrGap):
		_ = errors.As(err, &fault) // both are faults
		return &Refused{Code: fault.Code, Reason: store.Text(fault.Message, MaxReason), Retry: true}
	case errors.As(err, &fault):
		return &Refused{Code: fault.Code, Reason: store.Text(fault.Message, MaxReason)}
	case errors.As(err, &known):
		return &Refused{Code: known.Code, Reason: store.Text(known.Message, MaxReason), Retry: artifact.Retryable(err)}
	}
	// A deadline or an error of the database that the next try may not see.
	return &Refused{Reason: "the daemon could not serve the transfer", Retry: true}
}

// fetch sends a blob that the lease gives a right to.
func (t *Transfers) fetch(ctx context.Context, agent string, f Fetch, s TransferStream) error {
	d, err := artifact.ParseDigest(f.Digest)
	if err != nil || !validLease(f.Lease) {
		return ErrTransferDenied.Because("no such lease or digest")
	}
	if err := t.allowed(ctx, fetchSQL, f.Lease, agent, d.Bytes()); err != nil {
		return err
	}
	r, size, err := t.cfg.Blobs.Get(ctx, d)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := bounded(ctx, s, Frame{Ready: &Ready{Size: size}}); err != nil {
		return err
	}
	buf := make([]byte, MaxData)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			if err := bounded(ctx, s, Frame{Data: buf[:n]}); err != nil {
				return err
			}
			t.meter.bytes.WithLabelValues("fetch").Add(float64(n))
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return bounded(ctx, s, Frame{End: &End{Size: size, Digest: d.String()}}) // only now the hash was verified
		}
		if err != nil {
			return err
		}
	}
}

// bounded sends a frame; a peer that takes none for too long loses its stream.
func bounded(ctx context.Context, s TransferStream, f Frame) error {
	ctx, done := context.WithTimeout(ctx, transferPause)
	defer done()
	if err := s.Send(ctx, f); err != nil {
		return &streamError{err}
	}
	return nil
}

// The run's source, and what the jobs that this one needs have left.
const fetchSQL = `
SELECT EXISTS (SELECT FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id JOIN forge.runs r ON r.id = j.run_id
  WHERE l.id = $1::text::uuid AND l.agent_id = $2 AND l.state = 'active'
    AND (r.source = $3 OR EXISTS (SELECT FROM forge.artifacts x JOIN forge.leases nl ON nl.id = x.lease_id AND nl.outcome = 'succeeded'
                                   JOIN forge.jobs n ON n.id = x.job_id
                                  WHERE x.run_id = j.run_id AND x.digest = $3 AND n.name = ANY (j.needs))))`

// allowed refuses unless the query says true.
func (t *Transfers) allowed(ctx context.Context, sql string, args ...any) error {
	ctx, done := context.WithTimeout(ctx, transferDBWait)
	defer done()
	var ok bool
	err := t.cfg.Store.Batch(ctx, func(b *pgx.Batch) {
		b.Queue(sql, args...).QueryRow(func(row pgx.Row) error { return row.Scan(&ok) })
	})
	switch {
	case err != nil:
		return fmt.Errorf("authorise: %w", err)
	case !ok:
		return ErrTransferDenied
	}
	return nil
}

const outputSQL = `
SELECT EXISTS (SELECT FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id
  WHERE l.id = $1::text::uuid AND l.agent_id = $2 AND l.state = 'active'
    AND j.outputs @> jsonb_build_array(jsonb_build_object('name', $3::text, 'path', $4::text)))`

// The row and the lease are looked at together: a lease that has ended meanwhile
// keeps nothing more. FOR SHARE waits for a completion that is under way; a key
// share would let it pass. Nothing but the lease and, after it, keys are locked.
const keepArtifactSQL = `
WITH l AS (
  SELECT l.id, l.job_id, j.run_id FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id
   WHERE l.id = $1::text::uuid AND l.agent_id = $2 AND l.state = 'active' FOR SHARE OF l), made AS (
  INSERT INTO forge.artifacts (lease_id, name, run_id, job_id, path, digest, size) SELECT l.id, $3, l.run_id, l.job_id, $4, $5, $6 FROM l
  ON CONFLICT (lease_id, name) DO NOTHING RETURNING digest)
SELECT EXISTS (SELECT FROM made) OR EXISTS (SELECT FROM forge.artifacts x, l WHERE x.lease_id = l.id AND x.name = $3 AND x.digest = $5)`

// store keeps a declared output: the blob first, then the row that says whose it is.
func (t *Transfers) store(ctx context.Context, agent string, o Store, s TransferStream) error {
	want, err := artifact.ParseDigest(o.Digest)
	if err != nil || !validLease(o.Lease) || strings.ContainsRune(o.Name+o.Path, 0) {
		return ErrTransferDenied.Because("no such lease or output")
	}
	if o.Size < 0 || o.Size > MaxStored {
		return artifact.ErrTooLarge.Because("output %q has %d bytes, more than %d", store.Text(o.Name, MaxName), o.Size, int64(MaxStored))
	}
	if err := t.allowed(ctx, outputSQL, o.Lease, agent, o.Name, o.Path); err != nil {
		return err
	}
	if err := bounded(ctx, s, Frame{Ready: &Ready{}}); err != nil {
		return err
	}
	data := &patient{ctx: ctx, s: s}
	b, err := t.cfg.Blobs.Put(ctx, data, artifact.Want{Digest: want, Limit: max(o.Size, 1)})
	if err != nil {
		return err
	}
	t.meter.bytes.WithLabelValues("store").Add(float64(b.Size))
	if err := t.allowed(ctx, keepArtifactSQL, o.Lease, agent, o.Name, o.Path, want.Bytes(), b.Size); err != nil {
		return err
	}
	return bounded(ctx, s, Frame{Done: &Done{}})
}

// patient reads Data frames, each within transferPause of the one before.
type patient struct {
	ctx  context.Context
	s    TransferStream
	rest []byte
	err  error
}

func (p *patient) Read(b []byte) (int, error) {
	for len(p.rest) == 0 && p.err == nil {
		ctx, done := context.WithTimeout(p.ctx, transferPause)
		f, err := p.s.Receive(ctx)
		done()
		switch {
		case errors.Is(err, io.EOF):
			p.err = &streamError{io.ErrUnexpectedEOF}
		case err != nil:
			p.err = &streamError{err}
		case f.End != nil:
			p.err = io.EOF
		case len(f.Data) == 0 || len(f.Data) > MaxData:
			p.err = &protocolError{what: "neither data nor its end"}
		default:
			p.rest = f.Data
		}
	}
	if len(p.rest) == 0 {
		return 0, p.err
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}
