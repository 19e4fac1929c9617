// Where nodes are found: the committed view first, then what a join reply said.

package membership

import (
	"sync"
	"sync/atomic"

	"github.com/forgeyard/forgeyard/fsm"
)

// Directory resolves node ids for transport.Endpoint.SetResolver.
type Directory struct {
	view atomic.Pointer[func() fsm.View]

	mu      sync.Mutex
	learned map[fsm.NodeID]fsm.Endpoint
}

// NewDirectory makes an empty directory.
func NewDirectory() *Directory { return &Directory{learned: map[fsm.NodeID]fsm.Endpoint{}} }

// Bind sets the source of the committed view.
func (d *Directory) Bind(view func() fsm.View) { d.view.Store(&view) }

// Learn remembers the endpoints of a join reply.
func (d *Directory) Learn(v fsm.View) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range v.Members {
		if m.Endpoint != "" {
			d.learned[m.Node] = m.Endpoint
		}
	}
}

// Resolve returns the address of a node.
func (d *Directory) Resolve(n fsm.NodeID) (string, bool) {
	if view := d.view.Load(); view != nil {
		if m, ok := (*view)().Member(n); ok && m.Endpoint != "" {
			return string(m.Endpoint), true
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.learned[n]
	return string(e), ok
}
