// The cell that all copies of a guard share, from inside.

package cluster

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
)

func activeCell() *cell {
	c := &cell{role: fsm.SchedulerLeader, epoch: 7, now: time.Now, confirmed: time.Now}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.refused = func(*cell, error) {}
	c.state.Store(int32(GuardActive))
	c.valid.Store(true)
	return c
}

// TestInactiveAndInvalidRefuseAlone: between the steps of a revocation a guard is already refused.
func TestInactiveAndInvalidRefuseAlone(t *testing.T) {
	c := activeCell()
	require.NoError(t, RoleGuard{c}.CheckActive())
	c.valid.Store(false)
	require.ErrorIs(t, RoleGuard{c}.CheckGranted(), ErrFenced)
	c = activeCell()
	c.state.Store(int32(GuardRevoked))
	require.ErrorIs(t, RoleGuard{c}.CheckGranted(), ErrFenced)
}

// TestRevokeTakesEveryStep of §294.
func TestRevokeTakesEveryStep(t *testing.T) {
	rec := &trace.Recorder{}
	service := &Service{tracer: rec, log: slog.New(slog.DiscardHandler), now: time.Now}
	s := &seat{service: service, role: fsm.SchedulerLeader, cell: activeCell()}
	s.revoke(causeFenced, ErrFenced)
	require.Equal(t, GuardRevoked, RoleGuard{s.cell}.State())
	require.False(t, s.cell.valid.Load())
	require.ErrorIs(t, context.Cause(s.cell.ctx), ErrFenced)
	events := rec.Events()
	require.Equal(t, []trace.Kind{trace.Inactive, trace.Cancel, trace.Invalidate}, trace.Kinds(events))
	require.LessOrEqual(t, events[0].Mono, events[1].Mono)
	require.LessOrEqual(t, events[1].Mono, events[2].Mono)
}
