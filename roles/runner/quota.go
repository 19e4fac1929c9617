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
)

// quota counts from time to time and adds what was submitted here since. It is
// a guard against floods, not an account: other daemons' submissions are seen
// with the next count.
type quota struct {
	db     Database
	limits QueueLimits

	mu      sync.Mutex // held while counting: others wait for the same count
	until   time.Time  // the count serves until then
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
	return &quota{db: db, limits: limits, byQueue: map[string]int{}}
}

const waitingSQL = `
SELECT queue, count(*) FROM (
  SELECT queue FROM forge.jobs WHERE state = 'queued' UNION ALL
  SELECT queue FROM forge.jobs WHERE state = 'blocked' UNION ALL
  SELECT queue FROM forge.jobs WHERE state = 'backoff') waiting GROUP BY queue`

// admit refuses n more jobs with ErrQueueFull when they exceed a limit.
func (q *quota) admit(ctx context.Context, queue string, n int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if began := time.Now(); began.After(q.until) {
		if err := q.count(ctx); err != nil {
			return fmt.Errorf("count what waits: %w", err)
		}
		q.until = time.Now().Add(max(quotaFresh, quotaFactor*time.Since(began)))
	}
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

func (q *quota) count(ctx context.Context) error {
	byQueue, total := map[string]int{}, 0
	err := q.db.Batch(ctx, func(b *pgx.Batch) {
		b.Queue(waitingSQL).Query(func(rows pgx.Rows) error {
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
	if err == nil {
		q.byQueue, q.total = byQueue, total
	}
	return err
}
