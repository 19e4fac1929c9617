// The writability probe: whether this node can write, and for how long it could.

package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/cluster"
)

// probeRest is the least time between two probes, whoever asks for them.
const probeRest = 100 * time.Millisecond

// prober runs write probes on its own goroutine, on a timer and when kicked.
type prober struct {
	cfg    Config
	write  func(context.Context) error
	hint   chan struct{}
	cancel context.CancelFunc
	ended  chan struct{}

	mu    sync.Mutex
	ok    bool
	since time.Time // when ok took its present value
	last  time.Time // when the last probe was begun
	said  string    // what was logged last
}

func newProber(cfg Config, write func(context.Context) error) *prober {
	return &prober{cfg: cfg, write: write, hint: make(chan struct{}, 1), ended: make(chan struct{}), since: cfg.Now()}
}

// start runs the probe until stop. The probe itself uses what it is part of, so
// it is started when that is complete.
func (p *prober) start() {
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	go p.run(ctx)
}

func (p *prober) run(ctx context.Context) {
	defer close(p.ended)
	tick := time.NewTicker(p.cfg.ProbeInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		p.once(ctx)
		// Everybody's failure is a hint. While the server is away they all fail, and each probe dials.
		rest := time.NewTimer(min(p.cfg.ProbeInterval/10, probeRest))
		select {
		case <-ctx.Done():
		case <-rest.C:
		}
		rest.Stop()
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-p.hint:
		}
	}
}

// once probes and records the answer under the time the question was asked: an
// answer read after a pause must not look fresh.
func (p *prober) once(ctx context.Context) {
	begun := p.cfg.Now()
	err := p.write(ctx)
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = begun
	if ok := err == nil; ok != p.ok {
		p.ok, p.since = ok, p.cfg.Now()
	}
	p.say(err)
}

// say logs the first answer and every other one that differs from the one
// before, by its code: an operator must see why a database is of no use also
// when it never was. The caller holds mu.
func (p *prober) say(err error) {
	now := "writable"
	var coded *cluster.Error
	switch {
	case errors.As(err, &coded):
		now = coded.Code
	case err != nil:
		now = err.Error()
	}
	if now == p.said {
		return
	}
	p.said = now
	if err == nil {
		p.cfg.Logger.Info("PostgreSQL is writable")
		return
	}
	p.cfg.Logger.Warn("PostgreSQL is not writable", "err", err)
}

func (p *prober) state() (ok bool, since time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	if stale := p.last.Add(3 * p.cfg.ProbeInterval); p.ok && now.After(stale) {
		return false, now.Sub(stale)
	}
	return p.ok, now.Sub(p.since)
}

// kick asks for a probe now; it never blocks.
func (p *prober) kick() {
	select {
	case p.hint <- struct{}{}:
	default:
	}
}

func (p *prober) stop() {
	p.cancel()
	<-p.ended
}

// writeProbe really writes: a full disk or a demoted server fails it, though both still answer reads.
func (s *Store) writeProbe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*s.cfg.ProbeInterval)
	defer cancel()
	return explain(s.lend(ctx, s.reserved, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "UPDATE coordination.probe SET at = coordination.clock()")
		return err
	}))
}
