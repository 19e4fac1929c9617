// What was sent over a link and is not answered yet, so that it is sent once.

package runner

import (
	"sync"
	"time"
)

// orderColumns are orders, as a statement takes them.
type orderColumns struct {
	leases              []string
	generations, epochs []int64
}

// sentOrders are the unanswered orders of one link. They end with it: over the
// next link everything that is open is sent again. The zero value is ready.
type sentOrders struct {
	mu      sync.Mutex
	byLease map[string]sentOrder
}

type sentOrder struct {
	generation, epoch int64
	at                time.Time
}

func (s *sentOrders) add(o *Offer, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byLease == nil {
		s.byLease = map[string]sentOrder{}
	}
	s.byLease[o.Lease] = sentOrder{int64(o.Generation), int64(o.Epoch), at}
}

// answered forgets an order: if it is still open, it is sent again.
func (s *sentOrders) answered(lease string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byLease, lease)
}

// unanswered adds what was sent since the given time to into, and forgets the rest.
func (s *sentOrders) unanswered(since time.Time, into *orderColumns) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for lease, o := range s.byLease {
		if o.at.Before(since) {
			delete(s.byLease, lease)
			continue
		}
		into.leases = append(into.leases, lease)
		into.generations, into.epochs = append(into.generations, o.generation), append(into.epochs, o.epoch)
	}
}
