// The backend of a standalone node: the same state machine and commands as a fleet, without consensus.

// Package local is the coordination engine of one standalone node (§162). It
// applies the same commands to the same state machine as a fleet does, keeps
// epochs in one durable file (§165), and opens no socket.
package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// Config says who runs where.
type Config struct {
	// Dir keeps the state; it is created with mode 0700. Empty: memory only, so
	// epochs start again with every process.
	Dir string
	// Self is this process. A zero Cluster or Node is taken from Dir, or minted
	// when Dir is new; a zero Incarnation is minted.
	Self   cluster.Identity
	Name   string           // of a new cluster, a label; empty: "standalone"
	Logger *slog.Logger     // nil: nothing is logged
	Now    func() time.Time // nil: time.Now
}

// Backend is the engine of a standalone node. One goroutine owns the state.
type Backend struct {
	self  cluster.Identity
	term  uint64 // of this process: every start begins a new leadership
	log   *slog.Logger
	now   func() time.Time
	store *store // nil in memory

	view     atomic.Pointer[fsm.View]
	failed   atomic.Pointer[cluster.Error] // the storage error that ended this engine
	reporter atomic.Pointer[func() cluster.HealthReport]
	hints    cluster.Hints

	proposals chan request
	done      chan struct{} // closed by Close
	closing   sync.Once
	owner     sync.WaitGroup
	closeErr  error
}

var _ cluster.Backend = (*Backend)(nil)

// request is one proposal on its way to the owner of the state.
type request struct {
	proposal fsm.Proposal
	answer   chan answer // capacity 1: the owner never waits for a caller that left
}

type answer struct {
	commit cluster.Commit
	err    error
}

// Open loads or creates the state and begins a new leadership term. A directory
// that is in use, damaged, emptied or of another node is refused and left as it is.
func Open(cfg Config) (*Backend, error) {
	b := &Backend{
		self: cfg.Self, log: cfg.Logger, now: cfg.Now,
		proposals: make(chan request), done: make(chan struct{}),
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if b.now == nil {
		b.now = time.Now
	}
	if cfg.Name == "" {
		cfg.Name = "standalone"
	}
	state := fsm.NewState()
	if cfg.Dir != "" {
		var err error
		if b.store, state, err = openStore(cfg.Dir); err != nil {
			return nil, err
		}
	}
	state, err := b.begin(state, cfg.Name)
	if err != nil {
		return nil, errors.Join(err, b.store.close())
	}
	b.publish(state)
	b.owner.Go(func() { b.run(state) })
	b.log.Info("standalone coordination ready", "cluster", b.self.Cluster, "node", b.self.Node, "term", b.term)
	return b, nil
}

// begin makes this process the leader and only voter: it founds the cluster, or
// replaces the process that ran before, which loses its roles by that (§13).
func (b *Backend) begin(state *fsm.State, name string) (*fsm.State, error) {
	v := state.View()
	b.term = v.Term + 1
	if b.self.Incarnation.IsZero() {
		b.self.Incarnation = cluster.NewIncarnationID()
	}
	var cmd fsm.Command
	if v.Initialised() {
		member, err := b.recognise(v)
		if err != nil {
			return nil, err
		}
		cmd = fsm.UpdateMember{Node: b.self.Node, ExpectedIncarnation: member.Incarnation, Incarnation: b.self.Incarnation}
	} else {
		if b.self.Cluster.IsZero() {
			b.self.Cluster = cluster.NewClusterID()
		}
		if b.self.Node.IsZero() {
			b.self.Node = cluster.NewNodeID()
		}
		founder := fsm.Member{Node: b.self.Node, Incarnation: b.self.Incarnation, Name: b.self.Name, Role: fsm.Voter, State: fsm.Active}
		cmd = fsm.InitCluster{ClusterID: b.self.Cluster, Name: name, Founder: founder}
	}
	next, _, err := b.apply(state, fsm.Proposal{Request: cluster.NewRequestID(), Command: cmd})
	if err != nil {
		return nil, fmt.Errorf("begin standalone coordination: %w", err)
	}
	return next, nil
}

// recognise takes missing ids from the state and refuses a foreign one.
func (b *Backend) recognise(v fsm.View) (fsm.Member, error) {
	if b.self.Cluster.IsZero() {
		b.self.Cluster = v.ClusterID
	}
	if b.self.Node.IsZero() && len(v.Members) == 1 {
		b.self.Node = v.Members[0].Node
	}
	member, known := v.Member(b.self.Node)
	if v.ClusterID != b.self.Cluster || !known {
		return member, cluster.ErrStoreForeign.Wrap(nil, "the data directory belongs to cluster %s, not to node %s of cluster %s",
			v.ClusterID, b.self.Node, b.self.Cluster)
	}
	return member, nil
}

// run owns the state until Close or a storage failure.
func (b *Backend) run(state *fsm.State) {
	for {
		select {
		case <-b.done:
			return
		case r := <-b.proposals:
			next, commit, err := b.apply(state, r.proposal)
			if err == nil {
				state = next
				b.publish(state)
			}
			r.answer <- answer{commit, err}
		}
	}
}

// apply applies one proposal to a copy and makes it durable before anybody sees it.
func (b *Backend) apply(state *fsm.State, p fsm.Proposal) (*fsm.State, cluster.Commit, error) {
	if failure := b.failed.Load(); failure != nil {
		return nil, cluster.Commit{}, failure
	}
	next, index := state.Clone(), state.View().Index+1
	result, err := next.Apply(index, b.term, p)
	var rejection *fsm.Rejection
	switch {
	case errors.As(err, &rejection):
		return nil, cluster.Commit{}, cluster.FromRejection(rejection)
	case err != nil:
		return nil, cluster.Commit{}, fmt.Errorf("apply: %w", err)
	}
	if err := b.store.save(next); err != nil {
		// The file may hold either state, so this process must not act on any.
		failure := cluster.ErrStoreFailed.Wrap(err, "the coordination state could not be written")
		failure.OutcomeUnknown = true
		b.failed.Store(failure)
		b.log.Error("coordination stops", "code", failure.Code, "err", failure)
		b.hints.Notify()
		return nil, cluster.Commit{}, failure
	}
	return next, cluster.Commit{Result: result, Index: index, Term: b.term}, nil
}

func (b *Backend) publish(state *fsm.State) {
	v := state.View()
	b.view.Store(&v)
	b.hints.Notify()
}

// Propose commits a proposal.
func (b *Backend) Propose(ctx context.Context, p fsm.Proposal) (cluster.Commit, error) {
	if err := b.usable(ctx); err != nil {
		return cluster.Commit{}, err
	}
	if _, err := fsm.EncodeProposal(p); err != nil { // the same bounds as in a fleet
		return cluster.Commit{}, cluster.ErrMalformedCommand.Wrap(err, "")
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	r := request{p, make(chan answer, 1)}
	select {
	case b.proposals <- r:
	case <-b.done:
		return cluster.Commit{}, cluster.ErrEngineClosed
	case <-ctx.Done():
		return cluster.Commit{}, notBegun(ctx.Err())
	}
	select {
	case a := <-r.answer:
		return a.commit, a.err
	case <-ctx.Done():
		return cluster.Commit{}, cluster.ErrTimeout.Wrap(ctx.Err(), "")
	}
}

// bounded gives a context without a deadline the default one (§184).
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, cluster.DefaultRequestTimeout)
}

// usable says why the engine cannot serve a call; nil when it can.
func (b *Backend) usable(ctx context.Context) error {
	if b.isClosed() {
		return cluster.ErrEngineClosed
	}
	if failure := b.failed.Load(); failure != nil {
		return failure
	}
	if err := ctx.Err(); err != nil {
		return notBegun(err)
	}
	return nil
}

// notBegun is the error of a call that ended before anything was done.
func notBegun(err error) *cluster.Error {
	e := cluster.ErrTimeout.Wrap(err, "the call ended before it was begun")
	e.OutcomeUnknown, e.Hint = false, "nothing changed; try again"
	return e
}

func (b *Backend) isClosed() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// Close stops the engine and frees the directory. Proposals under way are answered or fail.
func (b *Backend) Close() error {
	b.closing.Do(func() {
		close(b.done)
		b.owner.Wait()
		b.closeErr = b.store.close()
	})
	return b.closeErr
}
