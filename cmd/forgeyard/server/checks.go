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

// The answers that the set itself gives.
var (
	ErrStopping = errors.New("this daemon is stopping")
	ErrNoAnswer = errors.New("no answer in time")
)

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
	now  func() time.Time
	wait sync.WaitGroup // the askers

	mu       sync.Mutex
	checks   []Check
	cached   []Result
	asking   []chan struct{} // per check: closed when its asker has answered; nil when none asks
	draining bool
}

// NewChecks makes a set of checks, asked in the order given.
func NewChecks(now func() time.Time, checks ...Check) *Checks {
	return &Checks{now: now, checks: checks, cached: make([]Result, len(checks)), asking: make([]chan struct{}, len(checks))}
}

// Drain makes the daemon unready from now on, before it stops serving.
func (c *Checks) Drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
}

// Run returns the answers, none older than CheckMaxAge plus CheckTimeout. It
// takes at most CheckTimeout, also when a check ignores its context; such a
// check counts as failed and is not asked again until it has answered.
func (c *Checks) Run(ctx context.Context) []Result {
	ctx, cancel := context.WithTimeout(ctx, CheckTimeout)
	defer cancel()
	for _, answered := range c.ask() {
		select {
		case <-answered:
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return []Result{{Name: "serving", Err: ErrStopping, At: c.now()}}
	}
	results := make([]Result, len(c.checks))
	for i, check := range c.checks {
		results[i] = c.cached[i]
		if c.asking[i] != nil {
			results[i] = Result{Name: check.Name, Err: ErrNoAnswer, At: c.now()}
		}
	}
	return results
}

// ask starts an asker for every check whose answer is too old and returns what
// to wait for. Callers at the same time share the askers.
func (c *Checks) ask() []chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return nil
	}
	var waits []chan struct{}
	for i, check := range c.checks {
		fresh := !c.cached[i].At.IsZero() && c.now().Sub(c.cached[i].At) < CheckMaxAge
		if c.asking[i] == nil && !fresh {
			c.asking[i] = make(chan struct{})
			c.wait.Go(func() { c.answer(i, check) })
		}
		if c.asking[i] != nil {
			waits = append(waits, c.asking[i])
		}
	}
	return waits
}

// answer asks one check. It does not end with the request that caused it: a
// prober that hung up must not leave a failure in the cache for others.
func (c *Checks) answer(i int, check Check) {
	ctx, cancel := context.WithTimeout(context.Background(), CheckTimeout)
	defer cancel()
	err := guarded(ctx, check)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cached[i] = Result{Name: check.Name, Err: err, At: c.now()}
	close(c.asking[i])
	c.asking[i] = nil
}

func guarded(ctx context.Context, check Check) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("check panicked: %v", r)
		}
	}()
	return check.Ask(ctx)
}

// settle waits for the askers until ctx ends. The goroutine that waits ends with
// the last asker, however late that is.
func (c *Checks) settle(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		c.wait.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a readiness check does not end: %w", ctx.Err())
	}
}
