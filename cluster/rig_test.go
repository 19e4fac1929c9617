// The stage for tests of the Service: a real local engine that can be disturbed, and trees that do what they are told.

package cluster_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/local"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
)

const scheduler = fsm.SchedulerLeader

// engine is a local engine whose confirmations, answers and hints a test can take away.
type engine struct {
	*local.Backend
	cut        atomic.Bool  // confirmations and proposals stop, as on a cut link
	skew       atomic.Int64 // how far the monotonic clock has jumped ahead
	generation atomic.Uint64
	lagging    atomic.Pointer[cluster.View] // what View shows while it lags
	deaf       bool                         // hints are lost
	frozen     time.Time

	mu       sync.Mutex
	disturb  func(n int, next func() (cluster.Commit, error)) (cluster.Commit, error) // of the n-th proposal of the Service
	asked    int
	commands []fsm.Command // of the Service that were committed, replays left out
}

func (e *engine) Confirmed() time.Time {
	if e.cut.Load() {
		return e.frozen
	}
	return e.Backend.Confirmed()
}

func (e *engine) View() cluster.View {
	if old := e.lagging.Load(); old != nil {
		return *old
	}
	v := e.Backend.View()
	v.Generation += fsm.Generation(e.generation.Load())
	return v
}

func (e *engine) Changes() (<-chan struct{}, func()) {
	if e.deaf {
		return nil, func() {}
	}
	return e.Backend.Changes()
}

func (e *engine) now() time.Time { return time.Now().Add(time.Duration(e.skew.Load())) }

// Propose is the Service's way in; the test itself proposes to the local engine.
func (e *engine) Propose(ctx context.Context, p fsm.Proposal) (cluster.Commit, error) {
	if e.cut.Load() {
		return cluster.Commit{}, cluster.ErrNoQuorum
	}
	e.mu.Lock()
	e.asked++
	n, disturb := e.asked, e.disturb
	e.mu.Unlock()
	next := func() (cluster.Commit, error) {
		commit, err := e.Backend.Propose(ctx, p)
		if err == nil && !commit.Replay {
			e.mu.Lock()
			e.commands = append(e.commands, p.Command)
			e.mu.Unlock()
		}
		return commit, err
	}
	if disturb != nil {
		return disturb(n, next)
	}
	return next()
}

func (e *engine) committed() []fsm.Command {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]fsm.Command(nil), e.commands...)
}

// rig is one process in a bubble.
type rig struct {
	*testing.T
	engine  *engine
	service *cluster.Service
	rec     *trace.Recorder
	trees   *trees
	exits   []string
	mu      sync.Mutex
}

type option func(*engine, *cluster.ServiceConfig)

func newRig(t *testing.T, options ...option) *rig {
	t.Helper()
	r := &rig{T: t, engine: &engine{}, rec: &trace.Recorder{}}
	b, err := local.Open(local.Config{Now: r.engine.now})
	require.NoError(t, err)
	r.engine.Backend = b
	cfg := cluster.ServiceConfig{Backend: r.engine, Tracer: r.rec, Now: r.engine.now, Roles: fsm.Roles(),
		Exit: func(code int, reason string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			require.Equal(t, 70, code)
			r.exits = append(r.exits, reason)
		}}
	for _, o := range options {
		o(r.engine, &cfg)
	}
	r.service = cluster.NewService(cfg)
	r.service.Start()
	self := b.Self()
	term, _ := b.Leadership()
	r.propose(fsm.BumpEpoch{Term: term.Term, Node: self.Node, Incarnation: self.Incarnation})
	r.trees = startTrees(r.service, r.rec)
	return r
}

// finish closes everything in order; nothing may run on.
func (r *rig) finish() {
	r.Helper()
	r.trees.release()
	ctx, cancel := context.WithTimeout(r.Context(), 20*time.Second)
	defer cancel()
	require.NoError(r, r.service.Close(ctx))
	r.trees.stop()
	require.NoError(r, r.engine.Close())
}

func (r *rig) propose(c fsm.Command) cluster.Commit {
	r.Helper()
	commit, err := r.engine.Backend.Propose(r.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: c})
	require.NoError(r, err)
	return commit
}

// assign gives the role to this process, as the coordination leader does.
func (r *rig) assign(role fsm.Role) fsm.Epoch {
	r.Helper()
	self, v := r.engine.Self(), r.engine.Backend.View()
	return r.propose(fsm.AssignRole{Leader: v.LeaderEpoch, Role: role, ExpectedEpoch: v.Role(role).Epoch, Owner: self.Node, Incarnation: self.Incarnation}).Epoch
}

// vacate takes the role away, as the coordination leader does.
func (r *rig) vacate(role fsm.Role) {
	r.Helper()
	self, v := r.engine.Self(), r.engine.Backend.View()
	r.propose(fsm.ReleaseRole{Leader: v.LeaderEpoch, Role: role, ExpectedEpoch: v.Role(role).Epoch, Node: self.Node, Incarnation: self.Incarnation, Code: "FY-TEST-001", Reason: "moved"})
}

// active assigns the role and returns its guard once loops run.
func (r *rig) active(role fsm.Role) cluster.RoleGuard {
	r.Helper()
	e := r.assign(role)
	r.eventually(func() bool {
		return r.stands(role) == cluster.RoleStatus{Role: role, Epoch: e, State: cluster.GuardActive}
	})
	g, err := r.service.AcquireRole(r.Context(), role)
	require.NoError(r, err)
	return g
}

// stands is where the role stands in the health report; zero when it does not appear.
func (r *rig) stands(role fsm.Role) cluster.RoleStatus {
	for _, st := range r.service.Status() {
		if st.Role == role {
			return st
		}
	}
	return cluster.RoleStatus{}
}

// eventually waits up to 5 s of virtual time.
func (r *rig) eventually(cond func() bool) {
	r.Helper()
	r.within(5*time.Second, cond)
}

func (r *rig) within(d time.Duration, cond func() bool) {
	r.Helper()
	for end := time.Now().Add(d); ; <-time.After(time.Millisecond) {
		synctest.Wait()
		if cond() {
			return
		}
		if time.Now().After(end) {
			require.FailNow(r, "it never came true", "status %+v, trace %v", r.service.Status(), trace.Kinds(r.rec.Events()))
		}
	}
}

func (r *rig) exited() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.exits...)
}

// trees is the simplest actor system: one goroutine a tree, none of which can be doubled.
type trees struct {
	service *cluster.Service
	rec     *trace.Recorder
	running map[fsm.Role]fsm.Epoch
	hold    atomic.Pointer[chan struct{}] // trees end only after it is closed
	quit    chan struct{}
	ended   chan fsm.Role
	work    sync.WaitGroup
	doubled atomic.Bool
	raise   func(g cluster.RoleGuard) error // nil: raising succeeds
}

func startTrees(s *cluster.Service, rec *trace.Recorder) *trees {
	t := &trees{service: s, rec: rec, running: map[fsm.Role]fsm.Epoch{}, quit: make(chan struct{}), ended: make(chan fsm.Role)}
	t.work.Go(t.run)
	return t
}

func (t *trees) run() {
	hint, stop := t.service.Changes()
	defer stop()
	var grown sync.WaitGroup
	defer grown.Wait()
	for {
		for _, role := range fsm.Roles() {
			want := t.service.Desired(role).Epoch
			have := t.running[role]
			if want != 0 && have != 0 && want != have {
				t.doubled.Store(true)
			}
			if want != 0 && have == 0 {
				t.running[role] = want
				grown.Go(func() { t.grow(role, want) })
			}
		}
		select {
		case <-t.quit:
			return
		case <-hint:
		case role := <-t.ended:
			epoch := t.running[role]
			delete(t.running, role)
			t.service.Report(role, epoch, cluster.TreeEnded, "", "")
		}
	}
}

// grow is the life of one tree.
func (t *trees) grow(role fsm.Role, epoch fsm.Epoch) {
	if g, err := t.service.AcquireRole(context.Background(), role); err == nil && g.Epoch() == epoch {
		t.live(g)
	}
	t.rec.Trace(trace.Event{Kind: trace.Terminated, Role: role, Epoch: epoch})
	select {
	case t.ended <- role:
	case <-t.quit:
	}
}

func (t *trees) live(g cluster.RoleGuard) {
	if t.raise != nil {
		if err := t.raise(g); err != nil {
			t.service.Report(g.Role(), g.Epoch(), cluster.TreeFailed, "FY-TEST-002", err.Error())
			return
		}
	}
	t.service.Report(g.Role(), g.Epoch(), cluster.TreeFenced, "", "")
	t.service.Report(g.Role(), g.Epoch(), cluster.TreeActive, "", "")
	<-g.Context().Done()
	if t.service.Desired(g.Role()).Epoch != g.Epoch() {
		t.rec.Trace(trace.Event{Kind: trace.Poison, Role: g.Role(), Epoch: g.Epoch()})
	}
	if hold := t.hold.Load(); hold != nil {
		<-*hold // a loop that does not listen to its context
	}
	t.rec.Trace(trace.Event{Kind: trace.LoopEnd, Role: g.Role(), Epoch: g.Epoch()})
}

// stick makes trees ignore their end until release.
func (t *trees) stick() {
	hold := make(chan struct{})
	t.hold.Store(&hold)
}

func (t *trees) release() {
	if hold := t.hold.Swap(nil); hold != nil {
		close(*hold)
	}
}

func (t *trees) stop() {
	close(t.quit)
	t.work.Wait()
}

var errLost = errors.New("connection reset")
