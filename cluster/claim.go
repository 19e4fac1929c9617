// Claims: the proposals that end a spent epoch, retried until the view has passed it.

package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
)

// Pace of the retries: 50 ms, doubled up to 1 s.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = time.Second
	// patience is how many refusals are laid on a view that lags, or on a leader
	// that is about to assign the role anew, before one is believed: about 1.5 s.
	patience = 5
)

// claim is the proposal of one command for one spent epoch. Its request id stays
// the same over all attempts, so an attempt that was applied is not applied again.
type claim struct {
	epoch    fsm.Epoch
	kind     debtKind
	request  fsm.RequestID
	attempts int
	refusals int
	done     bool // committed; the view is about to pass the epoch
}

func (c claim) backoff() time.Duration {
	return min(firstRetry<<min(max(c.attempts-1, 0), 8), lastRetry)
}

// propose starts one attempt. The seat's lock is held.
func (s *seat) propose(epoch fsm.Epoch, owed debt) {
	if s.claim.epoch != epoch || s.claim.kind != owed.kind {
		s.claim = claim{epoch: epoch, kind: owed.kind, request: NewRequestID()}
	}
	s.claim.attempts++
	s.unanswered++
	p := fsm.Proposal{Request: s.claim.request, Command: s.command(epoch, owed)}
	s.service.work.Go(func() {
		ctx, cancel := context.WithTimeout(s.service.ctx, DefaultRequestTimeout)
		defer cancel()
		_, err := s.service.backend.Propose(ctx, p)
		s.feed(event{kind: s.answer(p.Request, owed, err), epoch: epoch})
	})
}

func (s *seat) command(epoch fsm.Epoch, owed debt) fsm.Command {
	if owed.kind == debtBump {
		return fsm.BumpEpoch{Role: s.role, ExpectedEpoch: epoch, Node: s.service.self.Node, Incarnation: s.service.self.Incarnation}
	}
	return fsm.ReleaseRole{
		Role: s.role, ExpectedEpoch: epoch, Node: s.service.self.Node, Incarnation: s.service.self.Incarnation,
		Code: fsm.Clip(owed.code, fsm.MaxCode), Reason: fsm.Clip(owed.reason, fsm.MaxReason),
	}
}

// answer notes the outcome of an attempt and says what it means.
func (s *seat) answer(request fsm.RequestID, owed debt, err error) eventKind {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unanswered--
	c := &s.claim
	if c.request != request {
		return evUncertain // another epoch is spent by now; the lifecycle ignores this one
	}
	switch {
	case err == nil:
		if !c.done {
			c.done = true
			s.trace(owed.kind.traced(), c.epoch, owed.code)
		}
		return evCommitted
	case refusal(err):
		if c.refusals++; c.refusals > patience {
			return evRefused
		}
	}
	s.service.log.Debug("a spent epoch is not ended yet", "role", s.role, "epoch", c.epoch, "attempt", c.attempts, "err", err)
	return evUncertain
}

func (k debtKind) traced() trace.Kind {
	if k == debtRelease {
		return trace.Release
	}
	return trace.Bump
}

// refusal reports whether the state machine certainly refused the command.
func refusal(err error) bool {
	var e *Error
	return errors.As(err, &e) && !e.OutcomeUnknown && !e.Kind.Retryable()
}
