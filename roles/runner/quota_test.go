// The count behind the queue limit: nobody waits for it beyond their own time.

package runner

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// counting plays a database that is asked for a count and may hang.
type counting struct {
	asked atomic.Int32
	hangs atomic.Bool
	fails atomic.Pointer[error]
}

func (c *counting) Batch(ctx context.Context, _ func(*pgx.Batch)) error {
	c.asked.Add(1)
	if c.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := c.fails.Load(); err != nil {
		return *err
	}
	return nil
}

// TestQuotaWaitsNoLongerThanItsClient: a count that hangs holds up nobody beyond
// their own time, and its failure is not each waiter's to find out again.
func TestQuotaWaitsNoLongerThanItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &counting{}
		q := newQuota(db, QueueLimits{})
		db.hangs.Store(true)
		began := time.Now()
		slow := make(chan error, 3)
		for range 3 {
			go func() { slow <- q.admit(t.Context(), "q", 1) }()
		}
		synctest.Wait()
		ctx, done := context.WithTimeout(t.Context(), time.Second)
		defer done()
		require.ErrorIs(t, q.admit(ctx, "q", 1), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		q.took("q", 1) // nor is who was admitted before held up
		require.Equal(t, time.Second, time.Since(began))
		for range 3 {
			require.ErrorIs(t, <-slow, context.DeadlineExceeded)
		}
		require.Equal(t, quotaBound, time.Since(began))
		require.EqualValues(t, 1, db.asked.Load(), "one count for all of them")

		db.hangs.Store(false)
		require.Error(t, q.admit(t.Context(), "q", 1), "the failure serves for a while")
		<-time.After(quotaFresh + time.Millisecond)
		require.NoError(t, q.admit(t.Context(), "q", 1))
		require.NoError(t, q.admit(t.Context(), "q", 1), "and so does a count")
		require.EqualValues(t, 2, db.asked.Load())

		<-time.After(quotaFresh + time.Millisecond)
		refused := errors.New("refused")
		db.fails.Store(&refused)
		for range 2 {
			require.ErrorIs(t, q.admit(t.Context(), "q", 1), refused)
		}
		require.EqualValues(t, 3, db.asked.Load())
	})
}

// TestQuotaForgetsAClientThatLeft: the end of the one who counts is no failure of the count.
func TestQuotaForgetsAClientThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &counting{}
		db.hangs.Store(true)
		q := newQuota(db, QueueLimits{})
		ctx, leave := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- q.admit(ctx, "q", 1) }()
		synctest.Wait()
		go func() { second <- q.admit(t.Context(), "q", 1) }()
		synctest.Wait()
		db.hangs.Store(false)
		leave()
		require.ErrorIs(t, <-first, context.Canceled)
		require.NoError(t, <-second, "the next one counts")
	})
}
