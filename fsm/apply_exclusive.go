// Commands about cluster-wide exclusive operations (§31).

package fsm

import "slices"

func (c StartExclusiveOperation) apply(b *body, _ entry) (Result, *Rejection) {
	i, held := b.scope(c.Scope)
	if held {
		x := b.Exclusive[i]
		r := reject(RejectHeld, "%s is held by node %s under epoch %d", c.Scope, x.Owner, x.Epoch)
		r.Current = x.Epoch
		return Result{}, r
	}
	m, rej := b.process(c.Owner, c.Incarnation)
	if rej != nil {
		return Result{}, rej
	}
	if m.State != Active {
		return Result{}, reject(RejectMember, "node %s is %s; only an Active member starts an exclusive operation", m.Node, m.State)
	}
	x := ExclusiveLease{Scope: c.Scope, Owner: c.Owner, Incarnation: c.Incarnation, Epoch: b.take()}
	b.Exclusive = slices.Insert(b.Exclusive, i, x)
	return Result{Epoch: x.Epoch}, nil
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
	if x.Owner != c.Owner || x.Incarnation != c.Incarnation {
		r := reject(RejectNotOwner, "%s epoch %d is held by node %s", c.Scope, x.Epoch, x.Owner)
		r.Current = x.Epoch
		return Result{}, r
	}
	b.Exclusive = slices.Delete(b.Exclusive, i, i+1)
	return Result{Epoch: x.Epoch}, nil
}
