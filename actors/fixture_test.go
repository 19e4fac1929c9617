// Fixtures: a node made of the scripted backend, the real service and the actor system, and roles that can be watched.

package actors

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
)

// idle is a planner that leaves placement to the test.
type idle struct{}

func (idle) Plan(cluster.View, []cluster.NodeReport, time.Time) []fsm.Command { return nil }

func (idle) Settled(cluster.View, []cluster.NodeReport) bool { return true }

// probe is a role under observation. Hooks may be set before the role runs.
type probe struct {
	role      fsm.Role
	raise     func(context.Context, cluster.RoleGuard) error
	reconcile func(context.Context, cluster.RoleGuard) error
	loop      func(context.Context, cluster.RoleGuard) error

	release chan struct{} // made by boot, in the bubble

	mu      sync.Mutex
	steps   []string
	running map[fsm.Epoch]int // loop runs by epoch
	overlap bool              // loops of two epochs ran at a time
	guard   cluster.RoleGuard
}

func (p *probe) note(step string, g cluster.RoleGuard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps = append(p.steps, step)
	p.guard = g
}

func (p *probe) enter(e fsm.Epoch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		p.running = map[fsm.Epoch]int{}
	}
	p.running[e]++
	p.overlap = p.overlap || len(p.running) > 1
}

func (p *probe) leave(e fsm.Epoch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[e]--; p.running[e] == 0 {
		delete(p.running, e)
	}
}

// epochs lists the epochs whose loops run now.
func (p *probe) epochs() []fsm.Epoch {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []fsm.Epoch
	for e := range p.running {
		list = append(list, e)
	}
	return list
}

func (p *probe) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.steps)
}

func (p *probe) overlapped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.overlap
}

func (p *probe) lastGuard() cluster.RoleGuard {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.guard
}

func (p *probe) spec() RoleSpec {
	untilDone := func(ctx context.Context, _ cluster.RoleGuard) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	loop := func(name string, run func(context.Context, cluster.RoleGuard) error) Loop {
		return Loop{Name: name, Run: func(ctx context.Context, g cluster.RoleGuard) error {
			p.enter(g.Epoch())
			defer p.leave(g.Epoch())
			p.note("loop "+name, g)
			return run(ctx, g)
		}}
	}
	spec := RoleSpec{
		Role: p.role,
		Raise: func(ctx context.Context, g cluster.RoleGuard) error {
			p.note("raise", g)
			if err := g.CheckGranted(); err != nil {
				return err
			}
			if p.raise != nil {
				return p.raise(ctx, g)
			}
			return nil
		},
		Reconcile: func(ctx context.Context, g cluster.RoleGuard) (string, error) {
			p.note("reconcile", g)
			if err := g.Check(); err != nil {
				return "", err
			}
			if p.reconcile != nil {
				return "", p.reconcile(ctx, g)
			}
			return "3 jobs, 1 lease", nil
		},
		Loops: []Loop{loop("idle", untilDone)},
	}
	if p.loop != nil {
		spec.Loops = append(spec.Loops, loop("busy", p.loop))
	}
	return spec
}

// host is one node.
type host struct {
	t       testing.TB
	backend *script
	service *cluster.Service
	sys     *System
	trace   *trace.Recorder
	probes  map[fsm.Role]*probe
	exits   chan string
}

// boot starts a node in a synctest bubble and stops it when the test's body ends.
// change may alter the configuration before it starts.
func boot(t testing.TB, change func(*Config), probes ...*probe) *host {
	h := &host{
		t: t, backend: newScript(), trace: &trace.Recorder{}, probes: map[fsm.Role]*probe{},
		exits: make(chan string, 100),
	}
	exit := func(_ int, reason string) { h.exits <- reason }
	cfg := Config{
		Backend: h.backend, NewPlanner: func() Planner { return idle{} }, Tracer: h.trace,
		Logger: slog.New(slog.DiscardHandler), Exit: exit, AllowCrash: true,
	}
	var roles []fsm.Role
	for _, p := range probes {
		p.release = make(chan struct{})
		h.probes[p.role] = p
		roles = append(roles, p.role)
		cfg.Roles = append(cfg.Roles, p.spec())
	}
	h.backend.office(2)
	h.service = cluster.NewService(cluster.ServiceConfig{Backend: h.backend, Tracer: h.trace, Exit: exit, Roles: roles})
	cfg.Trees = h.service
	if change != nil {
		change(&cfg)
	}
	h.service.Start()
	sys, err := Start(cfg)
	require.NoError(t, err)
	h.sys = sys
	return h
}

// bubble runs a test on a node in a synctest bubble.
func bubble(t *testing.T, change func(*Config), body func(*testing.T, *host), probes ...*probe) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := boot(t, change, probes...)
		defer h.shutdown()
		synctest.Wait() // every supervisor has started
		body(t, h)
	})
}

func (h *host) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(h.t, h.service.Close(ctx))
	require.NoError(h.t, h.sys.Stop(ctx))
	h.settle(10 * time.Millisecond) // the engine throttles its own log of dead letters with a short-lived goroutine
}

// eventually waits in virtual time until ok holds.
func (h *host) eventually(what string, ok func() bool) {
	h.t.Helper()
	for range 20_000 {
		synctest.Wait()
		if ok() {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
	require.Fail(h.t, "never happened: "+what, "%v\n%v", h.sys.Tree(), h.trace.Events())
}

// settle lets d of virtual time pass.
func (h *host) settle(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// active waits until exactly the committed epoch of the role runs here, and returns it.
func (h *host) active(r fsm.Role) fsm.Epoch {
	h.t.Helper()
	var g fsm.RoleGrant
	h.eventually(r.String()+" is active", func() bool {
		g = h.backend.view().Role(r)
		info, ok := h.entry(treePath(r, g.Epoch))
		return g.HeldBy(member(1).Node, member(1).Incarnation) && ok && info.GuardState == cluster.GuardActive &&
			slices.Equal(h.probes[r].epochs(), []fsm.Epoch{g.Epoch})
	})
	return g.Epoch
}

// crash makes an actor panic at its next message.
func (h *host) crash(path string) {
	h.t.Helper()
	require.NoError(h.t, h.sys.Crash(path))
}

// gone waits until no tree of the role lives here.
func (h *host) gone(r fsm.Role) {
	h.t.Helper()
	h.eventually(r.String()+" is gone", func() bool {
		return h.sys.treeOf(r) == nil && len(h.probes[r].epochs()) == 0
	})
}

func (h *host) entry(path string) (ActorInfo, bool) {
	for _, i := range h.sys.Tree() {
		if i.Path == path {
			return i, true
		}
	}
	return ActorInfo{}, false
}

// requireInOrder requires that the last event of each kind came in this order
// for one epoch. Service and actors write their lines after the fact, so only
// the stamps tell the order between the two.
func (h *host) requireInOrder(r fsm.Role, e fsm.Epoch, kinds ...trace.Kind) {
	h.t.Helper()
	events := h.trace.Of(r, e)
	last := func(k trace.Kind) int {
		for i := len(events) - 1; i >= 0; i-- {
			if events[i].Kind == k {
				return i
			}
		}
		require.Fail(h.t, "no "+string(k), "%v", trace.Kinds(events))
		return -1
	}
	ours := func(k trace.Kind) bool {
		return slices.Contains([]trace.Kind{trace.Poison, trace.Stop, trace.Terminated, trace.LoopStart, trace.LoopEnd}, k)
	}
	for i := 1; i < len(kinds); i++ {
		before, after := last(kinds[i-1]), last(kinds[i])
		require.LessOrEqual(h.t, events[before].Mono, events[after].Mono, "%s, %s", kinds[i-1], kinds[i])
		if ours(kinds[i-1]) == ours(kinds[i]) {
			require.Less(h.t, before, after, "%v", trace.Kinds(events))
		}
	}
}

var errTest = errors.New("test fault")
