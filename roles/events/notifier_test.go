// Wake-ups between daemons over a real database, also after its sessions were cut.

package events_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/events"
)

// fleet starts a notifier for each name and returns their buses and what wakes a topic's subscriber.
func (p *plane) notifiers(topic string, names ...string) (buses []*events.Bus, woken []chan struct{}) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.Context()))
	over := make(chan error, len(names))
	for _, name := range names {
		b, w := events.NewBus(), make(chan struct{}, 1)
		b.Subscribe(topic, func() {
			select {
			case w <- struct{}{}:
			default:
			}
		})
		n := events.NewNotifier(b, p.store, name, nil)
		go func() { over <- n.Run(ctx) }()
		buses, woken = append(buses, b), append(woken, w)
	}
	p.Cleanup(func() {
		cancel()
		for range names {
			require.NoError(p, <-over)
		}
	})
	for _, w := range woken {
		p.wait(w, "a notifier that begins to listen wakes everybody once")
	}
	return buses, woken
}

func (p *plane) wait(c <-chan struct{}, what string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), soon)
	defer cancel()
	select {
	case <-c:
	case <-ctx.Done():
		require.FailNow(p, "not woken", what)
	}
}

func TestNotifierWakesOtherDaemons(t *testing.T) {
	p := newPlane(t)
	buses, woken := p.notifiers(events.Orders, "a", "b", "c")
	buses[0].Notify(events.Orders)
	for _, w := range woken {
		p.wait(w, "orders on a")
	}
	buses[1].Notify(events.Logs) // of no interest here
	buses[1].Notify(events.Orders)
	p.wait(woken[2], "orders on b")
}

// Whoever lost its session may have missed anything: it is woken when it listens again.
func TestNotifierSurvivesItsSessions(t *testing.T) {
	p := newPlane(t)
	buses, woken := p.notifiers(events.Work, "a", "b")
	for range 3 {
		_, err := p.super.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`)
		require.NoError(t, err)
		for _, w := range woken {
			p.wait(w, "listening again")
		}
	}
	buses[0].Notify(events.Work)
	p.wait(woken[1], "work on a")
}

func TestEventsTopicHearsOthers(t *testing.T) {
	b := events.NewBus()
	n := 0
	b.Subscribe(events.Happens, func() { n++ })
	for _, topic := range []string{events.Work, events.Orders, events.Cancels, events.Happens} {
		b.Notify(topic)
	}
	b.Notify(events.Logs)
	require.Equal(t, 4, n)
}
