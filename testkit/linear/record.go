// Histories of the committed state, recorded at its callers: real calls, real answers, unknown outcomes.

package linear

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
)

// Recorder keeps what any number of engines of one cluster answered. The zero value is ready.
type Recorder struct {
	mu    sync.Mutex
	ops   []Grant
	asked map[fsm.RequestID]*asked
	lives map[fsm.NodeID]fsm.IncarnationID // of each node the newest that is watched
}

// asked is a request: all attempts of it are one operation (or one for each role).
type asked struct {
	first, n int // its operations
	attempts int
}

// Grants is what was recorded so far. What is still unanswered has an unknown outcome.
func (r *Recorder) Grants() []Grant {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ops)
}

// Watch returns the engine with its proposals about roles and its linearizable
// reads recorded. A process that is replaced is recorded as Vacate for every
// role, and a member that is removed as Remove. The engine announces a new
// incarnation by itself, at some time after it was watched, if ever: so a Vacate of
// the one before begins here, with an unknown outcome.
func (r *Recorder) Watch(b cluster.Backend) cluster.Backend {
	self := b.Self()
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.lives[self.Node]
	if known && before != self.Incarnation {
		call := now()
		for _, op := range vacate(self.Node, before, 0) {
			op.Interval, op.Outcome = Interval{call, Open}, Unknown
			r.ops = append(r.ops, op)
		}
	}
	if r.lives == nil {
		r.lives = map[fsm.NodeID]fsm.IncarnationID{}
	}
	r.lives[self.Node] = self.Incarnation
	return watched{b, r}
}

// vacate is what the end of a process does to its grants.
func vacate(n fsm.NodeID, inc fsm.IncarnationID, g fsm.Generation) (ops []Grant) {
	for _, role := range fsm.Roles() {
		ops = append(ops, Grant{Kind: Vacate, Role: role, Generation: g, Owner: Process(n, inc)})
	}
	return ops
}

type watched struct {
	cluster.Backend
	to *Recorder
}

// Process names a process as histories do.
func Process(n fsm.NodeID, inc fsm.IncarnationID) string {
	if n.IsZero() {
		return ""
	}
	return n.String() + "/" + inc.String()
}

func now() int64 { return trace.Mono(time.Now()) }

// Propose implements cluster.Backend.
func (w watched) Propose(ctx context.Context, p fsm.Proposal) (cluster.Commit, error) {
	request := w.to.called(p, w.View().Generation)
	commit, err := w.Backend.Propose(ctx, p)
	w.to.answered(request, commit, err)
	return commit, err
}

// LinearizableView implements cluster.Backend.
func (w watched) LinearizableView(ctx context.Context) (cluster.View, error) {
	call := now()
	v, err := w.Backend.LinearizableView(ctx)
	if err != nil {
		return v, err
	}
	done := Interval{call, now()}
	w.to.mu.Lock()
	defer w.to.mu.Unlock()
	for _, role := range fsm.Roles() {
		g := v.Role(role)
		w.to.ops = append(w.to.ops, Grant{
			Interval: done, Kind: Observe, Role: role, Generation: v.Generation, Epoch: g.Epoch, Owner: Process(g.Owner, g.Incarnation),
		})
	}
	return v, nil
}

// called notes the operations of a command, at first with an unknown outcome.
func (r *Recorder) called(p fsm.Proposal, g fsm.Generation) *asked {
	r.mu.Lock()
	defer r.mu.Unlock()
	request, again := r.asked[p.Request]
	if !again {
		if r.asked == nil {
			r.asked = map[fsm.RequestID]*asked{}
		}
		ops := operations(p.Command, g)
		request = &asked{first: len(r.ops), n: len(ops)}
		r.asked[p.Request] = request
		call := now()
		for _, op := range ops {
			op.Interval, op.Outcome = Interval{call, Open}, Unknown
			r.ops = append(r.ops, op)
		}
	}
	request.attempts++
	for i := range request.n {
		// An attempt that was refused was the only one till now; this one may be committed all the same.
		if op := &r.ops[request.first+i]; op.Outcome == Refused {
			op.Outcome, op.Return = Unknown, Open
		}
	}
	return request
}

// answered notes what an attempt became. A refusal is certain only of the one
// attempt: an earlier one may still be on its way.
func (r *Recorder) answered(request *asked, commit cluster.Commit, err error) {
	at := now()
	r.mu.Lock()
	defer r.mu.Unlock()
	var why *cluster.Error
	refused := errors.As(err, &why) && !why.OutcomeUnknown && request.attempts == 1
	for i := range request.n {
		op := &r.ops[request.first+i]
		switch {
		case op.Outcome == Done:
		case err == nil:
			op.Outcome, op.Return = Done, at
			if op.Kind == Assign || op.Kind == Renew {
				op.Epoch = commit.Epoch
			}
		case refused:
			op.Outcome, op.Return = Refused, at
		}
	}
}

// operations are what a command does to grants.
func operations(c fsm.Command, g fsm.Generation) (ops []Grant) {
	switch c := c.(type) {
	case fsm.AssignRole:
		ops = append(ops, Grant{Kind: Assign, Role: c.Role, Generation: g, Expected: c.ExpectedEpoch, Owner: Process(c.Owner, c.Incarnation)})
	case fsm.BumpEpoch:
		if c.Role != 0 {
			ops = append(ops, Grant{Kind: Renew, Role: c.Role, Generation: g, Expected: c.ExpectedEpoch, Owner: Process(c.Node, c.Incarnation)})
		}
	case fsm.ReleaseRole:
		ops = append(ops, Grant{Kind: Release, Role: c.Role, Generation: g, Epoch: c.ExpectedEpoch, Owner: Process(c.Node, c.Incarnation)})
	case fsm.UpdateMember:
		if !c.Incarnation.IsZero() && c.Incarnation != c.ExpectedIncarnation {
			ops = vacate(c.Node, c.ExpectedIncarnation, g)
		}
	case fsm.RemoveMember:
		for _, role := range fsm.Roles() {
			ops = append(ops, Grant{Kind: Remove, Role: role, Generation: g, Owner: c.Node.String()})
		}
	}
	return ops
}
