// Commands about cluster-wide exclusive operations (§31).

package fsm

import "slices"

func (c StartExclusiveOperation) apply(b *body, _ entry) (Result, *Rejection) {
	i, held := b.scope(c.Scope)
	if rej := c.expectScope(b, i, held); rej != nil {
		return Result{}, rej
	}
	m, rej := b.process(c.Owner, c.Incarnation)
	if rej != nil {
		return Result{}, rej
	}
	if m.State != Active {
		return Result{}, reject(RejectMember, "node %s is %s; only an Active member starts an exclusive operation", m.Node, m.State)
	}
	if role, coordinated := c.Scope.Coordinator(); coordinated && !b.grant(role).HeldBy(c.Owner, c.Incarnation) {
		return Result{}, reject(RejectNotOwner, "%s is started by the owner of %s only", c.Scope, role)
	}
	x := ExclusiveLease{Scope: c.Scope, Owner: c.Owner, Incarnation: c.Incarnation, Epoch: b.take()}
	if held {
		b.Exclusive[i] = x
	} else {
		b.Exclusive = slices.Insert(b.Exclusive, i, x)
	}
	return Result{Epoch: x.Epoch}, nil
}

// expectScope: the scope is free, or held by exactly the abandoned operation that is taken over.
func (c StartExclusiveOperation) expectScope(b *body, i int, held bool) *Rejection {
	if !held {
		if c.Abandoned != 0 {
			return staleEpoch(c.Scope.String(), c.Abandoned, 0)
		}
		return nil
	}
	x := b.Exclusive[i]
	abandoned := b.abandoned(x)
	if abandoned && c.Abandoned == x.Epoch {
		return nil
	}
	r := reject(RejectHeld, "%s is held by node %s under epoch %d", c.Scope, x.Owner, x.Epoch)
	if abandoned {
		r = reject(RejectAbandoned, "%s was abandoned by node %s under epoch %d; what it did is unknown", c.Scope, x.Owner, x.Epoch)
	}
	r.Current = x.Epoch
	return r
}

func (c CompleteExclusiveOperation) apply(b *body, _ entry) (Result, *Rejection) {
	i, held := b.scope(c.Scope)
	if !held {
		return Result{}, staleEpoch(c.Scope.String(), c.Epoch, 0)
	}
	x := b.Exclusive[i]
	if x.Epoch != c.Epoch {
		return Result{}, staleEpoch(c.Scope.String(), c.Epoch, x.Epoch)
	}
	if x.Owner != c.Owner || x.Incarnation != c.Incarnation || b.abandoned(x) {
		r := reject(RejectNotOwner, "node %s, incarnation %s, has no authority over %s epoch %d", c.Owner, c.Incarnation, x.Scope, x.Epoch)
		r.Current = x.Epoch
		return Result{}, r
	}
	b.Exclusive = slices.Delete(b.Exclusive, i, i+1)
	return Result{Epoch: x.Epoch}, nil
}

func (b *body) abandoned(x ExclusiveLease) bool {
	var owner Member
	if i, known := b.member(x.Owner); known {
		owner = b.Config.Members[i]
	}
	role, _ := x.Scope.Coordinator()
	return x.abandoned(owner, b.grant(role))
}
