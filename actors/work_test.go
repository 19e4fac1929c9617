// Work and mailboxes: bounded, answered in every case, counted when lost.

package actors

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/trace"
)

func nothing(context.Context, cluster.RoleGuard) error { return nil }

// do calls Do on a goroutine and returns where its answer comes.
func (h *host) do(f func(context.Context, cluster.RoleGuard) error) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- h.sys.Do(h.t.Context(), role, f) }()
	return answer
}

func TestWorkRunsUnderTheGuard(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		require.ErrorIs(t, h.sys.Do(t.Context(), role, nothing), cluster.ErrNotOwner)
		h.backend.assign(role, 1)
		epoch := h.active(role)
		require.NoError(t, h.sys.Do(t.Context(), role, func(ctx context.Context, g cluster.RoleGuard) error {
			require.Equal(t, epoch, g.Epoch())
			require.Equal(t, g.Context(), ctx)
			return g.CheckActive()
		}))
		require.ErrorIs(t, h.sys.Do(t.Context(), role, func(context.Context, cluster.RoleGuard) error { return errTest }), errTest)
		require.ErrorContains(t, h.sys.Do(t.Context(), role, func(context.Context, cluster.RoleGuard) error { panic("test panic") }), "test panic")
		require.Equal(t, epoch, h.active(role), "failed work is the caller's, not the role's")
	}, &probe{role: role})
}

func TestWorkBeforeActive(t *testing.T) {
	p := &probe{role: role}
	p.reconcile = func(ctx context.Context, _ cluster.RoleGuard) error {
		select {
		case <-p.release:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		h.eventually("reconciling", func() bool { return len(p.seen()) == 2 })
		require.ErrorIs(t, h.sys.Do(t.Context(), role, nothing), errNotActive)
		close(p.release)
		h.active(role)
		require.NoError(t, h.sys.Do(t.Context(), role, nothing))
	}, p)
}

// Poison ends the actor after its queue, and what is queued is answered FENCED.
func TestPoisonDrainsAsFenced(t *testing.T) {
	for name, stuck := range map[string]time.Duration{"drained": 200 * time.Millisecond, "stopped after the grace": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, h *host) {
				h.backend.assign(role, 1)
				epoch := h.active(role)
				release := make(chan struct{})
				require.NoError(t, h.sys.Stall(treePath(role, epoch), release))
				h.settle(time.Millisecond)
				var answers []<-chan error
				for range 20 {
					answers = append(answers, h.do(func(context.Context, cluster.RoleGuard) error {
						t.Error("work ran after the revocation")
						return nil
					}))
				}
				h.settle(time.Millisecond)
				h.backend.assign(role, 2)
				h.settle(stuck)
				close(release)
				for _, a := range answers {
					require.ErrorIs(t, <-a, cluster.ErrFenced)
				}
				h.gone(role)
				kinds := trace.Kinds(h.trace.Of(role, epoch))
				require.Contains(t, kinds, trace.Poison)
				require.Equal(t, stuck > stopGrace, contains(kinds, trace.Stop))
			}, &probe{role: role})
		})
	}
}

func contains(kinds []trace.Kind, k trace.Kind) bool {
	for _, x := range kinds {
		if x == k {
			return true
		}
	}
	return false
}

func TestMailboxBounded(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		path := treePath(role, h.active(role))
		release := make(chan struct{})
		require.NoError(t, h.sys.Stall(path, release))
		h.settle(time.Millisecond)
		var queued []<-chan error
		for range MaxWork {
			queued = append(queued, h.do(nothing))
		}
		h.settle(time.Second)
		require.ErrorIs(t, h.sys.Do(t.Context(), role, nothing), ErrOverloaded)
		info, _ := h.entry(path)
		require.EqualValues(t, MaxWork, info.MailboxDepth)
		require.GreaterOrEqual(t, info.OldestMessageAge, time.Second)
		close(release)
		for _, a := range queued {
			require.NoError(t, <-a)
		}
		require.NoError(t, h.sys.Do(t.Context(), role, nothing))
		info, _ = h.entry(path)
		require.Zero(t, info.MailboxDepth)
		require.Zero(t, info.OldestMessageAge)
	}, &probe{role: role})
}

func TestWorkInFlightBounded(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		h.active(role)
		release := make(chan struct{})
		var running []<-chan error
		for range MaxWork {
			running = append(running, h.do(func(context.Context, cluster.RoleGuard) error { <-release; return nil }))
		}
		h.settle(time.Millisecond)
		require.ErrorIs(t, h.sys.Do(t.Context(), role, nothing), ErrOverloaded)
		close(release)
		for _, a := range running {
			require.NoError(t, <-a)
		}
	}, &probe{role: role})
}

// Ticks say nothing that one tick does not say, so a stuck actor's mailbox does not grow.
func TestActorLifecycleTicksCoalesce(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		release := make(chan struct{})
		require.NoError(t, h.sys.Stall(pathLeader, release))
		h.settle(time.Minute)
		info, _ := h.entry(pathLeader)
		require.EqualValues(t, 1, info.MailboxDepth)
		close(release)
		h.settle(time.Second)
		info, _ = h.entry(pathLeader)
		require.Zero(t, info.MailboxDepth)
	})
}

func TestDeadLettersCountedActorLifecycle(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		h.sys.send(treePath(role, 99), &failed{errTest})
		h.sys.proto.Root.Send(h.sys.pid(treePath(role, 99)), &failed{errTest})
		require.EqualValues(t, 2, h.sys.DeadLetters())
		lost := &work{answer: make(chan error, 1)}
		h.sys.proto.Root.Send(h.sys.pid(treePath(role, 99)), lost)
		require.ErrorIs(t, <-lost.answer, cluster.ErrFenced)
		require.EqualValues(t, 3, h.sys.DeadLetters())

		h.sys.send(pathWatcher, &failed{errTest})
		h.eventually("unhandled", func() bool { return h.sys.Unhandled() == 1 })
	}, &probe{role: role})
}

// A stopped or stuck watcher does not stall commits.
func TestApplyNeverBlocks(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		release := make(chan struct{})
		require.NoError(t, h.sys.Stall(pathWatcher, release))
		require.NoError(t, h.sys.Stall(rolePath(role), release))
		h.settle(time.Millisecond)
		began := time.Now()
		for n := range uint64(100) {
			h.backend.assign(role, 1+n%2)
		}
		require.Less(t, time.Since(began), time.Second)
		require.Empty(t, h.probes[role].seen())
		close(release)
		h.backend.assign(role, 1)
		h.active(role)
	}, &probe{role: role})
}
