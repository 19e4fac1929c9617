// Apply: one log entry in, one result or rejection out, the same on every replica (§44, §48).

package fsm

// Apply applies the entry at index of term. It is pure: the outcome depends on
// the state, the term and the proposal alone. The error is a *Rejection, and
// then nothing but the position in the log has changed.
//
// A request id that was accepted before, within the last MaxRecent requests,
// returns its first result with Replay set and changes nothing. Rejected
// requests are not remembered: a retry is judged anew.
func (s *State) Apply(index, term uint64, p Proposal) (Result, error) {
	s.at = entry{Index: index, Term: term}
	if res, ok := s.body.replay(p.Request); ok {
		return res, nil
	}
	if err := p.check(); err != nil {
		return Result{}, s.body.describe(reject(RejectInvalid, "%s", err))
	}
	// Commands work on a copy, so that no rejection can leave half a change behind.
	next := s.body.clone()
	if next.ClusterID.IsZero() && p.Command.Kind() != KindInitCluster {
		return Result{}, reject(RejectUninitialised, "the cluster is not initialised")
	}
	res, rej := p.Command.apply(&next, s.at)
	if rej != nil {
		return Result{}, s.body.describe(rej)
	}
	res.Config = next.Config.Version
	next.remember(p.Request, res)
	s.body = next
	return res, nil
}

// describe adds what the proposer needs to form a better proposal.
func (b *body) describe(r *Rejection) *Rejection {
	r.Config = b.Config.Version
	return r
}

func (b *body) replay(id RequestID) (Result, bool) {
	for _, r := range b.Recent {
		if r.ID == id {
			r.Result.Replay = true
			return r.Result, true
		}
	}
	return Result{}, false
}

func (b *body) remember(id RequestID, res Result) {
	if len(b.Recent) == MaxRecent {
		b.Recent = append(b.Recent[:0], b.Recent[1:]...)
	}
	b.Recent = append(b.Recent, request{ID: id, Result: res})
}
