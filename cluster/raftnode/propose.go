// Proposals: on the leader into the log, elsewhere through the leader, with every outcome told apart.

package raftnode

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/hashicorp/raft"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// proposePause is the wait between attempts while no leader takes the proposal.
const proposePause = 50 * time.Millisecond

// Propose implements cluster.Backend. Attempts that certainly changed nothing,
// or whose outcome the request id makes harmless to repeat, are made again
// through whichever node leads until the time is up.
func (n *Node) Propose(ctx context.Context, p fsm.Proposal) (cluster.Commit, error) {
	data, err := fsm.EncodeProposal(p)
	if err != nil {
		return cluster.Commit{}, cluster.ErrMalformedCommand.Wrap(err, "the proposal cannot be encoded")
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	changed, unsubscribe := n.hints.Subscribe()
	defer unsubscribe()
	unknown := false
	for {
		commit, err := n.attempt(ctx, p.Command, data)
		unknown = unknown || cluster.OutcomeUnknown(err)
		if err == nil || !n.worthRetrying(err, p.Command) {
			return commit, withOutcome(err, unknown, p.Command)
		}
		pause := time.NewTimer(proposePause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return cluster.Commit{}, withOutcome(err, unknown, p.Command)
		case <-changed:
			pause.Stop()
		case <-pause.C:
		}
	}
}

// withOutcome marks an error whose proposal may have been committed by an earlier
// attempt, or may be yet: every one that is not the state machine's lasting refusal.
func withOutcome(err error, unknown bool, c fsm.Command) error {
	var e *cluster.Error
	if !unknown || !errors.As(err, &e) || e.OutcomeUnknown || cluster.Settles(e, c) {
		return err
	}
	doubtful := *e
	doubtful.OutcomeUnknown = true
	return &doubtful
}

// worthRetrying: a command that only a leader may propose is dead once this node does not lead.
func (n *Node) worthRetrying(err error, c fsm.Command) bool {
	if !cluster.KindOf(err).Retryable() || n.stop.Err() != nil {
		return false
	}
	return n.raft.State() == raft.Leader || forwardable(c, n.cfg.Self)
}

func (n *Node) attempt(ctx context.Context, c fsm.Command, data []byte) (cluster.Commit, error) {
	if err := n.usable(); err != nil {
		return cluster.Commit{}, err
	}
	if n.raft.State() == raft.Leader {
		return n.append(ctx, data)
	}
	leader, known := n.leader()
	switch {
	case !forwardable(c, n.cfg.Self):
		return cluster.Commit{}, cluster.ErrNotLeader
	case !known:
		return cluster.Commit{}, cluster.ErrNoQuorum.Wrap(nil, "no leader is known to this node")
	case leader == n.cfg.Self.Node:
		return cluster.Commit{}, cluster.ErrNotLeader
	}
	return n.forward(ctx, leader, data)
}

// append hands the proposal to the log and waits for its result.
func (n *Node) append(ctx context.Context, data []byte) (cluster.Commit, error) {
	enqueue := cluster.DefaultRequestTimeout
	if deadline, ok := ctx.Deadline(); ok {
		enqueue = max(time.Millisecond, time.Until(deadline))
	}
	var result applied
	err := n.await(ctx, func() error {
		f := n.raft.Apply(data, enqueue)
		err := n.answer(f)
		n.noteHandover(err)
		if err == nil {
			result = f.Response().(applied)
		}
		return err
	})
	if err != nil {
		return cluster.Commit{}, appendError(err)
	}
	return result.commit, result.err
}

// appendError tells apart what certainly was not appended from what may have been.
func appendError(err error) error {
	var typed *cluster.Error
	switch {
	case errors.As(err, &typed):
		return err
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return cluster.ErrNotLeader.Wrap(err, "")
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown), errors.Is(err, raft.ErrAbortedByRestore):
		return ErrOutcomeUnknown.Wrap(err, "")
	}
	e := cluster.ErrStoreFailed.Wrap(err, "the entry may be stored, here or on others")
	e.OutcomeUnknown = true
	return e
}

// LinearizableView implements cluster.Backend: it proves leadership by a round
// to a majority, then waits until everything committed before is applied (§308).
func (n *Node) LinearizableView(ctx context.Context) (cluster.View, error) {
	if err := n.usable(); err != nil {
		return cluster.View{}, err
	}
	if _, leads := n.Leadership(); !leads {
		if _, known := n.leader(); !known {
			return cluster.View{}, cluster.ErrNoQuorum.Wrap(nil, "no leader is known to this node")
		}
		return cluster.View{}, cluster.ErrNotLeader
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	err := n.await(ctx, func() error {
		if err := n.answer(n.raft.VerifyLeader()); err != nil {
			return err
		}
		return n.barrier()
	})
	if err != nil {
		return cluster.View{}, cluster.ErrNoQuorum.Wrap(err, "leadership could not be proved")
	}
	return n.View(), nil
}

// usable refuses once the engine was closed or gave up.
func (n *Node) usable() error {
	if n.stop.Err() != nil {
		return cluster.ErrEngineClosed
	}
	if e := n.failure.Load(); e != nil {
		return e
	}
	return nil
}

// await runs f on a goroutine that Close waits for, and returns when it or ctx
// ends. The library's futures have no deadline of their own: behind a hung disk
// they never answer.
func (n *Node) await(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	if !n.calls.start(func() { done <- f() }) {
		return cluster.ErrEngineClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return cluster.ErrTimeout.Wrap(ctx.Err(), "")
	}
}

// answer waits for a future of the library until the engine has stopped, which
// leaves what it had queued, or was about to apply, without an answer for ever.
func (n *Node) answer(f raft.Future) error {
	// The way out that the library gives some of its futures; the type of the others has it too, but no name.
	if end := reflect.Indirect(reflect.ValueOf(f)).FieldByName("ShutdownCh"); end.CanSet() && end.IsNil() {
		end.Set(reflect.ValueOf(n.ended))
	}
	return f.Error()
}

// bounded gives a context without a deadline the default one (§184).
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, cluster.DefaultRequestTimeout)
}
