// The cluster reconciler: it sweeps after each change of leadership and periodically, only while this node leads.

package actors

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/reconcile"
)

// sweeper counts sweeps and answers what a test wants.
type sweeper struct {
	mu     sync.Mutex
	count  int
	now    int // sweeps under way
	most   int
	answer func(ctx context.Context) (reconcile.Report, error)
}

func (s *sweeper) Sweep(ctx context.Context) (reconcile.Report, error) {
	s.mu.Lock()
	s.count++
	s.now++
	s.most = max(s.most, s.now)
	answer := s.answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now--
	}()
	if answer != nil {
		return answer(ctx)
	}
	return reconcile.Report{}, nil
}

func (s *sweeper) will(answer func(ctx context.Context) (reconcile.Report, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *sweeper) sweeps() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

func sweepWith(s *sweeper) func(*Config) { return func(c *Config) { c.Reconciler = s } }

func TestReconcilerActor(t *testing.T) {
	s := &sweeper{}
	bubble(t, sweepWith(s), func(t *testing.T, h *host) {
		h.settle(time.Minute)
		require.Zero(t, s.sweeps(), "another node leads")
		info, ok := h.entry(pathReconciler)
		require.True(t, ok)
		require.Equal(t, KindReconciler, info.Kind)
		require.Equal(t, pathCoordination, info.Parent)

		h.backend.lead()
		h.eventually("the first sweep", func() bool { return s.sweeps() == 1 })
		h.eventually("its record", func() bool { i, _ := h.entry(pathReconciler); return i.LastScan.Result == "term 0: 0 findings" })
		h.settle(29 * time.Second)
		require.Equal(t, 1, s.sweeps())
		h.settle(2 * time.Second)
		require.Equal(t, 2, s.sweeps(), "periodically")
		h.backend.lead()
		h.settle(2 * time.Second)
		require.Equal(t, 3, s.sweeps(), "after a change of leadership")

		h.backend.follow()
		h.settle(time.Minute)
		require.Equal(t, 3, s.sweeps())
		h.backend.lead()
		h.eventually("the next sweep", func() bool { return s.sweeps() == 4 })
	})
}

// What was found is looked at again soon, and what failed is tried again.
func TestReconcilerLooksAgain(t *testing.T) {
	for name, answer := range map[string]func(context.Context) (reconcile.Report, error){
		"a finding": func(context.Context) (reconcile.Report, error) {
			return reconcile.Report{Findings: []reconcile.Finding{{Check: reconcile.Exclusive}}}, nil
		},
		"an error": func(context.Context) (reconcile.Report, error) { return reconcile.Report{}, errors.New("no quorum") },
		"a hang": func(ctx context.Context) (reconcile.Report, error) {
			<-ctx.Done()
			return reconcile.Report{}, ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sweeper{answer: answer}
			bubble(t, sweepWith(s), func(t *testing.T, h *host) {
				h.backend.lead()
				h.settle(sweepBound + recheck + 3*time.Second)
				require.GreaterOrEqual(t, s.sweeps(), 2)
				require.LessOrEqual(t, s.sweeps(), 4)
				require.Equal(t, 1, s.most, "one at a time")
			})
		})
	}
}

// A reconciler that keeps panicking disturbs no role and no process.
func TestReconcilerPanics(t *testing.T) {
	s := &sweeper{answer: func(context.Context) (reconcile.Report, error) { panic("test panic") }}
	bubble(t, sweepWith(s), func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		epoch := h.active(role)
		h.backend.lead()
		h.settle(5 * time.Second)
		require.Equal(t, 4, s.sweeps(), "the budget, then a pause")
		_, there := h.entry(pathReconciler)
		require.False(t, there)
		s.will(nil)
		h.eventually("another try", func() bool { return s.sweeps() == 5 })
		require.Equal(t, epoch, h.active(role))
		require.Empty(t, h.exits)
	}, &probe{role: role})
}

// A crash in the middle of a sweep ends that sweep; the new actor begins its own.
func TestReconcilerCrashes(t *testing.T) {
	s := &sweeper{}
	s.will(func(ctx context.Context) (reconcile.Report, error) {
		<-ctx.Done()
		return reconcile.Report{}, ctx.Err()
	})
	bubble(t, sweepWith(s), func(t *testing.T, h *host) {
		h.backend.lead()
		h.eventually("a sweep", func() bool { return s.sweeps() == 1 })
		h.crash(pathReconciler)
		h.eventually("the next one", func() bool { return s.sweeps() == 2 })
		info, _ := h.entry(pathReconciler)
		require.Equal(t, 1, info.Restarts)
	})
}
