// The node under test: what it is made of, how it starts and ends, what can be done to it.

package actorchaos

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/local"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/order"
)

// node is one standalone node with all four roles.
type node struct {
	t       *testing.T
	rng     *rand.Rand
	backend *backend
	service *cluster.Service
	system  *actors.System
	trace   *trace.Recorder
	roles   map[fsm.Role]*worker
	panics  *panics
	trees   *trees
	planner *planner
	exits   exits
}

// inBubble runs a test on a fresh node in virtual time. At its end it stops the
// node, checks its whole trace, and that nothing is left of it.
func inBubble(t *testing.T, seed uint64, budget actors.Budget, body func(*testing.T, *node)) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	defer func() {
		if !t.Failed() { // a failed test leaves its node running
			goleak.VerifyNone(t, before)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		n := boot(t, seed, budget)
		body(t, n)
		n.stop()
		order.Require(t, n.trace.Events())
		for _, w := range n.roles {
			w.requireSound(t)
		}
	})
}

func boot(t *testing.T, seed uint64, budget actors.Budget) *node {
	engine, err := local.Open(local.Config{Self: cluster.Identity{Name: "yard"}})
	require.NoError(t, err)
	n := &node{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), backend: &backend{Backend: engine}, trace: &trace.Recorder{},
		roles: map[fsm.Role]*worker{}, panics: &panics{}, planner: &planner{},
	}
	log := slog.New(n.panics)
	var specs []actors.RoleSpec
	for _, role := range fsm.Roles() {
		n.roles[role] = newWorker(role, rand.New(rand.NewPCG(seed, uint64(role)+1)))
		specs = append(specs, n.roles[role].spec())
	}
	n.service = cluster.NewService(cluster.ServiceConfig{
		Backend: n.backend, Tracer: n.trace, Logger: log, Exit: n.exits.note, Roles: fsm.Roles(),
	})
	n.trees = &trees{Trees: n.service}
	n.backend.SetReporter(n.report)
	n.service.Start()
	n.system, err = actors.Start(actors.Config{
		Trees: n.trees, Backend: n.backend, Roles: specs, Tracer: n.trace, Logger: log, Exit: n.exits.note,
		NewPlanner: n.planner.begin, Budget: budget, AllowCrash: true,
	})
	require.NoError(t, err)
	return n
}

func (n *node) report() cluster.HealthReport {
	self := n.backend.Self()
	return cluster.HealthReport{
		Node: self.Node, Incarnation: self.Incarnation, PGWritable: true, PGWritableFor: time.Hour,
		RunnableRoles: fsm.Roles(), AppliedIndex: n.backend.View().Index, Roles: n.service.Status(),
	}
}

// stop ends the node like a daemon does: roles first.
func (n *node) stop() {
	n.t.Helper()
	n.planner.hold(true) // without a memory it would give every released role straight back
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(n.t, n.service.Close(ctx))
	require.NoError(n.t, n.system.Stop(ctx))
	require.Empty(n.t, n.system.Tree())
	require.NoError(n.t, n.backend.Close())
	n.settle(10 * time.Millisecond) // the engine throttles its own log with a short-lived goroutine
}

// settle lets d of virtual time pass.
func (n *node) settle(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// random lets up to most of virtual time pass.
func (n *node) random(most time.Duration) { n.settle(time.Duration(n.rng.Int64N(int64(most)))) }

// eventually waits up to five virtual minutes until ok holds.
func (n *node) eventually(what string, ok func() bool) {
	n.t.Helper()
	for begun := time.Now(); ; n.settle(10 * time.Millisecond) {
		synctest.Wait()
		if ok() {
			return
		}
		if time.Since(begun) > 5*time.Minute {
			require.FailNow(n.t, "it never happened: "+what, "%+v\n%+v", n.rows(), n.system.Tree())
		}
	}
}

// active waits until exactly the committed epoch of a role works, and returns it.
func (n *node) active(role fsm.Role) (epoch fsm.Epoch) {
	n.t.Helper()
	n.eventually(role.String()+" is active", func() bool {
		epoch = n.grant(role).Epoch
		return n.row(role).Active == health.Yes && n.roles[role].runsOnly(epoch)
	})
	return epoch
}

func (n *node) allActive() {
	n.t.Helper()
	for _, role := range fsm.Roles() {
		n.active(role)
	}
}

func (n *node) grant(role fsm.Role) fsm.RoleGrant { return n.backend.View().Role(role) }

// rows is what `forgeyard cluster roles` shows.
func (n *node) rows() []health.RoleRow {
	status := health.Build(health.Input{Self: n.backend.Self(), View: n.backend.View(), Own: n.report(), Now: time.Now()})
	return status.RoleList().Roles
}

func (n *node) row(role fsm.Role) health.RoleRow {
	for _, row := range n.rows() {
		if row.Role == role {
			return row
		}
	}
	return health.RoleRow{}
}

// vacate takes a role away as the coordination leader does.
func (n *node) vacate(role fsm.Role) {
	v := n.backend.View()
	g := v.Role(role)
	_, _ = n.backend.Propose(context.Background(), fsm.Proposal{Request: cluster.NewRequestID(), Command: fsm.ReleaseRole{
		Leader: v.LeaderEpoch, Role: role, ExpectedEpoch: g.Epoch, Node: g.Owner, Incarnation: g.Incarnation,
		Code: "FY-TEST-001", Reason: "the test moves it",
	}}) // refused when the owner renewed its epoch in between: then nothing moves
}

// exits notes how the process was asked to end.
type exits struct {
	mu    sync.Mutex
	codes []int
	why   []string
}

func (e *exits) note(code int, reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.codes, e.why = append(e.codes, code), append(e.why, reason)
}

func (e *exits) all() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]int{}, e.codes...)
}

// panics is a log handler that counts actors' panics by path.
type panics struct {
	mu    sync.Mutex
	paths []string
}

func (p *panics) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (p *panics) WithAttrs([]slog.Attr) slog.Handler           { return p }
func (p *panics) WithGroup(string) slog.Handler                { return p }

func (p *panics) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "actor panicked" && r.Message != "loop panicked" {
		return nil
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "actor" || a.Key == "loop" {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.paths = append(p.paths, a.Value.String())
			return false
		}
		return true
	})
	return nil
}

// count says how many panics there were of actors whose path begins with prefix
// and has depth parts.
func (p *panics) count(prefix string, depth int) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, path := range p.paths {
		if strings.HasPrefix(path, prefix) && strings.Count(path, "/")+1 == depth {
			n++
		}
	}
	return n
}

// setting reads a number from the environment.
func setting(t *testing.T, name string, fallback uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	v, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, name)
	return v
}

func chaosRounds(t *testing.T) int { return int(setting(t, "FORGEYARD_CHAOS_ROUNDS", 10)) }

func chaosSeed(t *testing.T) uint64 {
	t.Helper()
	seed := setting(t, "FORGEYARD_CHAOS_SEED", uint64(time.Now().UnixNano()))
	t.Logf("FORGEYARD_CHAOS_SEED=%d", seed)
	return seed
}
