// Each fenced operation is told once, with its outcome.

package store

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// observer notes what a store tells of its fenced operations and what it logs.
type observer struct {
	mu  sync.Mutex
	ops []Operation
	log bytes.Buffer
}

// Write takes the log's lines; the handler writes one at a time.
func (o *observer) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.log.Write(p)
}

func (o *observer) configure(c *Config) {
	c.Logger = slog.New(slog.NewTextHandler(o, nil))
	c.Observe = func(ctx context.Context, op Operation) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.ops = append(o.ops, op)
	}
}

// next is what was told and logged since the last call.
func (o *observer) next(t *testing.T) (op Operation, lost int, log string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	require.Len(t, o.ops, 1, "told once")
	op, log = o.ops[0], o.log.String()
	o.ops = nil
	o.log.Reset()
	return op, strings.Count(log, "epoch lost at a fenced operation"), log
}

// Each fenced operation is told once, with the guard's role and epoch, and
// logged once when it cost the epoch (§250, §252, §254).
func TestFencedOperationsAreTold(t *testing.T) {
	db := newDatabase(t)
	o := &observer{}
	s := open(t, db, o.configure)
	h := newHolder(t)
	g := h.granted(t, 5)
	ctx := t.Context()

	expect := func(kind OperationKind, epoch fsm.Epoch, outcome Outcome, sent bool, lost int, do func() error) string {
		t.Helper()
		err := do()
		op, logged, log := o.next(t)
		require.Equal(t, kind, op.Kind)
		require.Equal(t, epoch, op.Epoch)
		require.Equal(t, outcome, op.Outcome, "%v", err)
		require.Equal(t, err, op.Err)
		require.Equal(t, sent, op.Sent)
		require.Positive(t, op.Took)
		require.Equal(t, lost, logged, log)
		if epoch != 0 {
			require.Equal(t, fsm.SchedulerLeader, op.Role)
			require.EqualValues(t, 1, op.Generation)
		}
		return log
	}
	write := func(g cluster.RoleGuard, fill func(*pgx.Batch)) func() error {
		return func() error { return s.Fenced(ctx, g, fill) }
	}
	expect(OperationWrite, 0, Lost, false, 0, write(cluster.RoleGuard{}, insert("zero guard")))
	expect(OperationWrite, 5, Lost, false, 0, write(g, insert("too early")))
	expect(OperationRaise, 5, Applied, true, 0, func() error { return s.RaiseFence(ctx, g) })
	g = h.fenced(t, s, 5)
	o.next(t) // the repeated raise
	expect(OperationWrite, 5, Applied, true, 0, write(g, insert("good")))
	expect(OperationAssert, 5, Applied, true, 0, func() error { return s.AssertFence(ctx, g) })
	expect(OperationWrite, 5, NotApplied, true, 0, write(g, func(b *pgx.Batch) { b.Queue("SELECT 1/0") }))

	require.NoError(t, s.raise(ctx, at(6, "other")))
	log := expect(OperationWrite, 5, Lost, true, 1, write(g, insert("late")))
	require.Contains(t, log, "epoch=5")
	require.Contains(t, log, "fenced at generation 1 epoch 6", "the epoch that stands is named too")
	expect(OperationWrite, 5, Lost, false, 0, write(g, insert("later"))) // the guard itself refuses now

	g = h.fenced(t, s, 10)
	o.next(t)
	require.NoError(t, s.raise(ctx, at(11, "other")))
	expect(OperationAssert, 10, Lost, true, 1, func() error { return s.AssertFence(ctx, g) })

	g = h.fenced(t, s, 15)
	o.next(t)
	expect(OperationWrite, 15, Unknown, true, 1, write(g, func(b *pgx.Batch) {
		b.Queue("SELECT 1").QueryRow(func(pgx.Row) error { return context.Canceled }) // hides the commit's answer
	}))
}
