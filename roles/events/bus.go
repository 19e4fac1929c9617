// Bus: wake-ups inside one daemon, and the set of those that other daemons are to hear.

package events

import "sync"

// Bus calls subscribers and collects what a notifier has to send. Its methods
// never block on anything but short critical sections; subscribers must not
// block either. The zero value is not usable: see NewBus.
type Bus struct {
	mu      sync.Mutex
	subs    map[string][]func()
	pending map[string]bool // to be sent to the other daemons
	more    chan struct{}   // pending is not empty
}

// NewBus makes a bus without subscribers.
func NewBus() *Bus {
	return &Bus{subs: map[string][]func(){}, pending: map[string]bool{}, more: make(chan struct{}, 1)}
}

// Subscribe calls wake after each Notify of the topic, on any daemon of the
// fleet, and after a break in which one may have been lost. Calls coalesce and
// come from other goroutines; wake must not block. There is no way out: those
// who subscribe live as long as the daemon.
func (b *Bus) Subscribe(topic string, wake func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subs[topic] = append(b.subs[topic], wake)
}

// Notify wakes the subscribers of a topic here and, when a notifier runs, on
// every other daemon. Call it only after the commit is known: whoever is woken
// reads, and must find what it was woken for.
func (b *Bus) Notify(topic string) {
	b.mu.Lock()
	b.pending[topic] = true
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
	b.wake(topic)
}

// wake calls the subscribers of the topics on this daemon only.
func (b *Bus) wake(topics ...string) {
	called := map[string]bool{}
	for _, t := range topics {
		for _, name := range spread(t) {
			if called[name] {
				continue
			}
			called[name] = true
			b.mu.Lock()
			subs := b.subs[name]
			b.mu.Unlock()
			for _, f := range subs {
				f()
			}
		}
	}
}

// spread lists the topics whose subscribers a topic concerns.
func spread(topic string) []string {
	if topic == Logs || topic == Happens {
		return []string{topic}
	}
	return []string{topic, Happens}
}

// take returns what is to be sent, in a fixed order, and forgets it.
func (b *Bus) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, t := range Topics() {
		if b.pending[t] {
			out = append(out, t)
		}
	}
	clear(b.pending)
	return out
}
