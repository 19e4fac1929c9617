// Doors: what may happen for one agent at a time, while other agents do not wait.

package runner

import (
	"context"
	"sync"
)

// doors has one door for each agent that is at one. The zero value is ready.
type doors struct {
	mu      sync.Mutex
	byAgent map[string]*door
}

type door struct {
	free chan struct{} // holds a token while nobody is inside
	at   int           // inside or waiting
}

// enter waits until nobody else is inside for the agent, or ctx ends. The
// caller must leave once it is in.
func (d *doors) enter(ctx context.Context, agent string) (leave func(), err error) {
	d.mu.Lock()
	if d.byAgent == nil {
		d.byAgent = map[string]*door{}
	}
	x := d.byAgent[agent]
	if x == nil {
		x = &door{free: make(chan struct{}, 1)}
		x.free <- struct{}{}
		d.byAgent[agent] = x
	}
	x.at++
	d.mu.Unlock()
	select {
	case <-x.free:
		return func() {
			x.free <- struct{}{}
			d.forget(agent, x)
		}, nil
	case <-ctx.Done():
		d.forget(agent, x)
		return nil, ctx.Err()
	}
}

func (d *doors) forget(agent string, x *door) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x.at--; x.at == 0 {
		delete(d.byAgent, agent)
	}
}
