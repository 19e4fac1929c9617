// Readiness checks: named, run side by side, each with a timeout, cached so that probes cannot load what they probe.

package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Bounds of readiness checks.
const (
	CheckTimeout = time.Second // for one check
	CheckMaxAge  = time.Second // a result this old is asked for again
)

// ErrStopping is what every check answers once Drain was called.
var ErrStopping = errors.New("this daemon is stopping")

// Check is one named question; nil is good.
type Check struct {
	Name string
	Ask  func(ctx context.Context) error
}

// Result is the last answer of a check.
type Result struct {
	Name string
	Err  error
	At   time.Time
}

// Checks holds the readiness checks of a daemon. Safe for concurrent use.
type Checks struct {
	now func() time.Time

	mu       sync.Mutex
	checks   []Check
	cached   []Result
	draining bool
}

// NewChecks makes a set of checks, asked in the order given.
func NewChecks(now func() time.Time, checks ...Check) *Checks {
	return &Checks{now: now, checks: checks, cached: make([]Result, len(checks))}
}

// Drain makes the daemon unready from now on, before it stops serving.
func (c *Checks) Drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
}

// Run returns the answers, none older than CheckMaxAge. Callers share one round.
func (c *Checks) Run(ctx context.Context) []Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return []Result{{Name: "serving", Err: ErrStopping, At: c.now()}}
	}
	// A prober that hung up must not leave "cancelled" in the cache for others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CheckTimeout)
	defer cancel()
	var round sync.WaitGroup
	for i, check := range c.checks {
		if !c.cached[i].At.IsZero() && c.now().Sub(c.cached[i].At) < CheckMaxAge {
			continue
		}
		round.Go(func() { c.cached[i] = Result{Name: check.Name, Err: ask(ctx, check), At: c.now()} })
	}
	round.Wait()
	return append([]Result{}, c.cached...)
}

// ask bounds a check that ignores its context: its goroutine is then left to
// end by itself, and the check counts as failed.
func ask(ctx context.Context, check Check) error {
	answer := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				answer <- fmt.Errorf("check panicked: %v", r)
			}
		}()
		answer <- check.Ask(ctx)
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no answer: %w", ctx.Err())
	}
}
