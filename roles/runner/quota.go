// The queue limit: how many jobs may wait, so that no client fills the database.

package runner

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// QueueLimits bound the jobs that wait for an agent, for others or for their next attempt.
type QueueLimits struct {
	Queue int // of one queue; 0 = 1,000,000
	Total int // of all queues; 0 = 2,000,000
}

// ErrQueueFull (FY-RUN-007): more jobs would wait than the limits allow. Retry-After says when to try again.
var ErrQueueFull = &access.Fault{
	Status: http.StatusTooManyRequests, Code: "FY-RUN-007", Message: "too many jobs wait already",
	Hint: "submit again later, cancel runs that are not needed, or add agents",
}

const (
	quotaRetry  = 10 * time.Second
	quotaFresh  = 2 * time.Second // a count serves for so long,
	quotaFactor = 50              // or for so many times as long as the counting took
	quotaBound  = 5 * time.Second // how long a count may take
)

// quota counts from time to time and adds what was submitted here since. It is
// a guard against floods, not an account: other daemons' submissions are seen
// with the next count.
type quota struct {
	db     Database
	limits QueueLimits

	turn chan struct{} // who has put its token in counts; others wait for the same count

	mu      sync.Mutex // never held while counting
	until   time.Time  // the count, or its failure, serves until then
	failure error      // of the last count; nil: it is below
	byQueue map[string]int
	total   int
}

func newQuota(db Database, limits QueueLimits) *quota {
	if limits.Queue <= 0 {
		limits.Queue = 1_000_000
	}
	if limits.Total <= 0 {
		limits.Total = 2_000_000
	}
	return &quota{db: db, limits: limits, turn: make(chan struct{}, 1), byQueue: map[string]int{}}
}

const waitingSQL = `
SELECT queue, count(*) FROM (
  SELECT queue FROM forge.jobs WHERE state = 'queued' UNION ALL
  SELECT queue FROM forge.jobs WHERE state = 'blocked' UNION ALL
  SELECT queue FROM forge.jobs WHERE state = 'backoff') waiting GROUP BY queue`

// admit refuses n more jobs with ErrQueueFull when they exceed a limit.
func (q *quota) admit(ctx context.Context, queue string, n int) error {
	if err := q.refresh(ctx); err != nil {
		return fmt.Errorf("count what waits: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.byQueue[queue]+n > q.limits.Queue:
		return ErrQueueFull.Because("%d jobs wait in queue %s, and %d more would exceed its limit of %d", q.byQueue[queue], queue, n, q.limits.Queue)
	case q.total+n > q.limits.Total:
		return ErrQueueFull.Because("%d jobs wait in all queues, and %d more would exceed the limit of %d", q.total, n, q.limits.Total)
	}
	return nil
}

// took adds what was submitted.
func (q *quota) took(queue string, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.byQueue[queue] += n
	q.total += n
}

// refresh counts unless the last count still serves. Of those who come
// meanwhile each waits no longer than its own ctx.
func (q *quota) refresh(ctx context.Context) error {
	if serves, err := q.last(); serves {
		return err
	}
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if serves, err := q.last(); serves { // another has counted
		return err
	}
	began := time.Now()
	bounded, done := context.WithTimeout(ctx, quotaBound)
	defer done()
	byQueue, total, err := q.count(bounded)
	if err != nil && ctx.Err() != nil {
		return err // this client's alone: the next one counts
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failure = err; err != nil { // asking again at once would not help a database in trouble
		q.until = time.Now().Add(quotaFresh)
		return err
	}
	q.until = time.Now().Add(max(quotaFresh, quotaFactor*time.Since(began)))
	q.byQueue, q.total = byQueue, total
	return nil
}

// last tells whether the last count serves, and its failure.
func (q *quota) last() (serves bool, failure error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !time.Now().After(q.until), q.failure
}

func (q *quota) count(ctx context.Context) (byQueue map[string]int, total int, err error) {
	err = q.db.Batch(ctx, func(b *pgx.Batch) {
		b.Queue(waitingSQL).Query(func(rows pgx.Rows) error {
			byQueue, total = map[string]int{}, 0
			for rows.Next() {
				var queue string
				var n int
				if err := rows.Scan(&queue, &n); err != nil {
					return err
				}
				byQueue[queue] = n
				total += n
			}
			return rows.Err()
		})
	})
	return byQueue, total, err
}
