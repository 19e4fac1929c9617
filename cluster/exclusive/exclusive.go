// Begins exclusive operations, takes abandoned ones over, and keeps what this process holds.

// Package exclusive is how a process holds one of the five cluster-wide scopes
// (§31–§33): it begins an operation under a new epoch, asks before every step
// whether it still has the authority, and completes it. See DESIGN.md.
package exclusive

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// Backend is what this package needs of a cluster.Backend. On a follower,
// Propose goes through the leader, so any Active member may begin an operation.
type Backend interface {
	Self() cluster.Identity
	View() cluster.View
	Changes() (hint <-chan struct{}, stop func())
	Propose(ctx context.Context, p fsm.Proposal) (cluster.Commit, error)
}

// Request says which scope to hold, and by what right.
type Request struct {
	Scope fsm.Scope
	// Guard is of the scope's coordinator role (ClusterMigration,
	// ReleaseChannelPromotion, DeploymentGlobalSwitch) and ends the operation's
	// authority with its own. The other scopes need none and ignore it.
	Guard cluster.RoleGuard
	// Abandoned is the epoch of the abandoned operation to take over, as StateOf
	// reports it; 0 when the scope must be free.
	Abandoned fsm.Epoch
}

// Operations holds what this process has begun. A process has exactly one, which
// every user of exclusive scopes shares: an operation that the cluster gave to
// this process and that no Begin returned is known by that to be untouched.
type Operations struct {
	backend Backend
	now     func() time.Time
	scopes  map[fsm.Scope]*slot // fixed: one for each scope
}

// slot is this process's place in one scope. Whoever put the value into turn changes the rest.
type slot struct {
	turn    chan struct{}                // capacity 1
	current atomic.Pointer[Operation]    // the last one begun here; nil before
	pending *fsm.StartExclusiveOperation // a beginning whose outcome is unknown
	request fsm.RequestID                // of pending: repeating it begins nothing twice
}

// New makes the Operations of a process. now must carry a monotonic reading; nil means time.Now.
func New(b Backend, now func() time.Time) *Operations {
	if now == nil {
		now = time.Now
	}
	o := &Operations{backend: b, now: now, scopes: map[fsm.Scope]*slot{}}
	for _, s := range fsm.Scopes() {
		o.scopes[s] = &slot{turn: make(chan struct{}, 1)}
	}
	return o
}

// Begin takes the scope under a new epoch and returns the operation once this
// node's own view shows and confirms it (when ctx ends before, the operation
// refuses until then).
//
// ErrHeld while another operation holds the scope, here or on another node;
// ErrAbandoned while nobody has the authority to complete the one that does,
// until it is taken over; ErrNeedsRole without the coordinator's guard. An error
// whose outcome is unknown may have taken the scope: the next Begin of this
// process finds out first, and nobody else gets the scope meanwhile.
func (o *Operations) Begin(ctx context.Context, r Request) (*Operation, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	s := o.scopes[r.Scope]
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ErrHeld.Wrap(ctx.Err(), "%s is being begun by this process", r.Scope)
	}
	if op, held := o.Current(r.Scope); held {
		return nil, ErrHeld.Wrap(nil, "%s is held by this process under epoch %d", r.Scope, op.epoch)
	}
	epoch, predecessor, err := o.take(ctx, s, r)
	if err != nil {
		return nil, err
	}
	op := newOperation(o, r, epoch, predecessor)
	s.current.Store(op)
	op.await(ctx)
	return op, nil
}

// Current is the operation that this process holds in the scope. A loop that
// was restarted finds here what it had begun, and must inspect for itself how
// far it came before it goes on or completes.
func (o *Operations) Current(scope fsm.Scope) (*Operation, bool) {
	s, ok := o.scopes[scope]
	if !ok {
		return nil, false
	}
	op := s.current.Load()
	if op == nil || !op.held() {
		return nil, false
	}
	return op, true
}

// check refuses what this process has no right to ask for.
func (r Request) check() error {
	role, coordinated := r.Scope.Coordinator()
	switch {
	case !r.Scope.Valid():
		return ErrNeedsRole.Wrap(nil, "there is no exclusive scope %s", r.Scope)
	case !coordinated:
		return nil
	case r.Guard.Role() != role:
		return ErrNeedsRole.Wrap(nil, "%s is held through %s", r.Scope, role)
	}
	return r.Guard.Check()
}

// take has the scope committed to this process and returns its epoch, and the
// epoch of the operation that was taken over.
func (o *Operations) take(ctx context.Context, s *slot, r Request) (epoch, predecessor fsm.Epoch, err error) {
	earlier := s.pending != nil
	if !earlier {
		self := o.backend.Self()
		s.pending = &fsm.StartExclusiveOperation{Scope: r.Scope, Owner: self.Node, Incarnation: self.Incarnation, Abandoned: r.Abandoned}
		s.request = cluster.NewRequestID()
	}
	start := *s.pending
	commit, err := o.backend.Propose(ctx, fsm.Proposal{Request: s.request, Command: start})
	switch {
	case cluster.OutcomeUnknown(err):
		return 0, 0, err
	case err != nil && earlier:
		// The replay window may have forgotten that an earlier attempt was accepted.
		if x, ours := o.unreturned(s, r.Scope); ours {
			commit.Epoch, err = x.Epoch, nil
		}
	}
	s.pending = nil
	return commit.Epoch, start.Abandoned, err
}

// unreturned is an operation that was committed to this process and never returned by Begin.
func (o *Operations) unreturned(s *slot, scope fsm.Scope) (fsm.ExclusiveLease, bool) {
	v, self := o.backend.View(), o.backend.Self()
	x, held := v.Held(scope)
	ours := held && x.Owner == self.Node && x.Incarnation == self.Incarnation && !v.Abandoned(x)
	last := s.current.Load()
	return x, ours && (last == nil || x.Epoch > last.epoch)
}
