// A supervisor started ahead: what its start costs is not on the way of the next attempt.

package runner

import (
	"context"
	"io"
	"sync"
)

// Prestarted runs tasks as Process does. Once a task has come it keeps one
// supervisor started and waiting for the next, for the start of this binary
// takes longer than anything else between a submission and a job's first step.
// An agent that was never given a job holds none.
type Prestarted struct {
	process Process
	fills   sync.WaitGroup // at most one

	mu      sync.Mutex
	spare   *supervised // waits for a task; may have ended since
	filling bool
	closed  bool
}

// NewPrestarted returns an executor; Close it after the last Run has returned.
func NewPrestarted(p Process) *Prestarted { return &Prestarted{process: p} }

// Run runs one task below the supervisor that waits, or below a new one.
func (p *Prestarted) Run(ctx context.Context, t Task, output io.Writer) Exit {
	s, err := p.take()
	if err != nil {
		return Exit{Err: err}
	}
	return s.wait(ctx, p.process, t, output)
}

// take returns a supervisor of its own for a task and has the next one started.
func (p *Prestarted) take() (*supervised, error) {
	p.mu.Lock()
	s := p.spare
	p.spare = nil
	if !p.filling && !p.closed {
		p.filling = true
		p.fills.Go(p.fill)
	}
	p.mu.Unlock()
	if s != nil {
		select {
		case <-s.ended: // a job of the same user may have killed it
			s.discard()
		default:
			return s, nil
		}
	}
	return p.process.start()
}

func (p *Prestarted) fill() {
	s, err := p.process.start()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filling = false
	if err == nil { // or the next task says why
		p.spare = s
	}
}

// Close ends the supervisor that waits.
func (p *Prestarted) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.fills.Wait()
	if s := p.spare; s != nil {
		p.spare = nil
		s.discard()
	}
}
