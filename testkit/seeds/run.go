// One seed from the empty fleet to the verdict.

package seeds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/config"
	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/membership"
	"github.com/forgeyard/forgeyard/cluster/raftnode"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/daemon"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/bubble"
	"github.com/forgeyard/forgeyard/testkit/history"
	"github.com/forgeyard/forgeyard/testkit/linear"
	"github.com/forgeyard/forgeyard/testkit/netsim"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

// The fleet of every seed.
const (
	daemons  = 3
	agents   = 2
	slots    = 4
	leaseTTL = 15 * time.Second // so that an agent that is cut off loses what it had

	// Log entries from one snapshot to the next, and those that stay behind it:
	// who was away for some seconds, or is new, is sent a snapshot.
	compactAfter = 24
	compactKeeps = 8
)

// world is one fleet under one schedule.
type world struct {
	t        testing.TB
	ctx      context.Context // of everything that asks the fleet for something
	schedule Schedule
	dir      string   // of the run: what happened, while it may still fail
	file     *os.File // what everybody logs
	log      *slog.Logger
	fleet    *bubble.Fleet
	places   [daemons]atomic.Pointer[bubble.Node]
	disks    [daemons]*disk
	tokens   map[*bubble.Node]membership.Token // of those that replace a lost one
	super    *pgx.Conn                         // a superuser's session, used on the goroutine of the test
	tally    *Tally
	work     *work
	traffic  *traffic
	locks    *locks
	replicas *replicas
	grants   linear.Recorder
	nemesis  *nemesis
	side     sync.WaitGroup // what is asked beside the traffic: token races, promotions, the filling of all slots

	firstTerm uint64 // in which somebody led before the first fault
	lastTerm  uint64 // and after the last
	strangers int
	starts    map[string]int // of each node
	ended     int            // daemons that ended by themselves
	judged    bool           // the verdict was reached
	mu        sync.Mutex
	problems  []string
}

// Run runs one schedule on a fleet of its own and judges it: no invariant broken
// under any fault, and progress within bounds once all are over. What happened is
// added to total, also when the run fails; then everything that it left stays in
// a directory whose name is printed at the start, and beside the schedule at the end.
func Run(t *testing.T, s Schedule, total *Tally) {
	db := pgtest.New(t)
	dir, err := os.MkdirTemp("", fmt.Sprintf("forgeyard-seed-%d-", s.Seed))
	require.NoError(t, err)
	t.Logf("seed %d: schedule and log are in %s", s.Seed, dir) // also when the process ends in the middle
	ctx := context.Background()                                // outlives the test's, so that a failed one is still recorded
	super, err := pgx.Connect(ctx, db.Super)
	require.NoError(t, err)
	require.NoError(t, history.Install(ctx, super))
	require.NoError(t, super.Close(ctx))
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		w := open(t, s, dir)
		t.Cleanup(func() {
			for kind, n := range w.tally.Counts() {
				total.Add(kind, n)
			}
			t.Logf("seed %d: %s", s.Seed, w.tally.effects())
			w.keep(db)
		})
		w.begin(db)
		w.suffer()
		w.recover()
		w.judge()
		w.judged = true
	})
	t.Logf("seed %d: %s of real time", s.Seed, time.Since(began).Round(time.Millisecond))
}

// open makes the world without a fleet.
func open(t testing.TB, s Schedule, dir string) *world {
	file, err := os.OpenFile(filepath.Join(dir, logFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600) // one write a line: daemons share it
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	require.NoError(t, os.WriteFile(filepath.Join(dir, scheduleFile), []byte(s.String()), 0o600))
	ctx, cancel := context.WithCancel(context.Background())
	w := &world{
		t: t, ctx: ctx, schedule: s, dir: dir, file: file, tokens: map[*bubble.Node]membership.Token{}, tally: NewTally(),
		work: &work{starts: map[string]int{}}, replicas: newReplicas(), starts: map[string]int{},
	}
	w.nemesis = &nemesis{w: w, cuts: map[*cut]bool{}, asked: make(chan func(), 1)}
	w.log = slog.New(slog.NewTextHandler(file, nil)).With("on", "nemesis")
	for i := range w.disks {
		w.disks[i] = newDisk(s.Seed, i)
	}
	t.Cleanup(func() { // whoever still waits for an answer when a run fails
		cancel()
		for _, d := range w.disks {
			d.release()
		}
		if w.traffic != nil {
			w.traffic.halt()
			w.locks.halt()
		}
		w.side.Wait()
	})
	return w
}

// begin starts clock, fleet and traffic.
func (w *world) begin(db *pgtest.Database) {
	clock, err := startClock(context.Background(), db.Super)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, clock.close()) })
	w.super, err = pgx.Connect(context.Background(), db.Super)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, w.super.Close(context.Background())) })
	w.fleet = bubble.NewWith(w.t, db, bubble.Options{
		Size: daemons, Seed: w.schedule.Seed, Log: w.file, Config: compactOften, Outside: w.outside, Ended: w.keepFiles,
	})
	for _, n := range w.fleet.Nodes {
		w.places[n.Place()].Store(n)
	}
	for i := range agents {
		w.fleet.StartAgent(fmt.Sprintf("agent-%d", i+1), slots, w.work)
	}
	w.fleet.ActiveAbove(fsm.SchedulerLeader, 0, w.fleet.Nodes...)
	w.firstTerm = w.fleet.Nodes[0].Coordination().View().LeaderEpoch.Term
	w.traffic = startTraffic(w.ctx, w.schedule.Seed, w.node, w.log)
	w.locks = startLocks(w.ctx, w.node)
}

// compactOften makes snapshots as often as some seconds of traffic allow.
func compactOften(cfg *config.Config) { cfg.Cluster.Snapshots.Entries = compactAfter }

// outside puts the harness between a new incarnation and the world.
func (w *world) outside(n *bubble.Node, out *daemon.Outside) {
	w.starts[n.Name]++
	process := w.process(n)
	out.Applied = func(index uint64, hash [32]byte) { w.replicas.heard(process, index, hash) }
	out.Disk = w.disks[n.Place()].below()
	out.Trailing = compactKeeps
	out.Watch = w.grants.Watch
	out.Logger = slog.New(overheard{out.Logger.Handler(), &listener{tally: w.tally}})
	out.Scheduler.LeaseTTL = leaseTTL
}

// process names the current incarnation of a node.
func (w *world) process(n *bubble.Node) string { return fmt.Sprintf("%s#%d", n.Name, w.starts[n.Name]) }

// node is the daemon in a place, whatever its state; numbers go round.
func (w *world) node(i int) *bubble.Node { return w.places[i%daemons].Load() }

// suffer is the first phase: everything that the schedule holds, and up to twice
// more each kind of stroke that hit nothing.
func (w *world) suffer() {
	before := w.fleet.Net.Stats()
	w.fleet.Net.SetWeather(w.schedule.Weather)
	n := w.nemesis
	n.run(w.schedule.Steps, w.schedule.Length)
	n.end()
	for range 2 {
		for _, kind := range w.tally.Missing(w.schedule.strokes()) {
			w.again(kind)
		}
	}
	after := w.fleet.Net.Stats()
	w.tally.Add(Loss, after.Dropped-before.Dropped)
	w.tally.Add(Duplicate, after.Duplicated-before.Duplicated)
	w.tally.Add(Reorder, after.Overtaken-before.Overtaken)
	w.tally.Add(Delay, after.Slowed-before.Slowed)
	w.fleet.Net.SetWeather(netsim.Weather{})
	w.fleet.Heal()
}

// again makes one stroke of a kind on a fleet that is otherwise left alone.
func (w *world) again(kind Kind) {
	i := slices.IndexFunc(w.schedule.Steps, func(s Step) bool { return s.Kind == kind })
	step := w.schedule.Steps[i]
	step.At, step.Who = 0, Leader
	if kind == CutTransfer {
		step.Pick = uint64(atOnce) // what it drew was too late
	}
	w.nemesis.run([]Step{step}, step.Lasts+time.Second)
	w.nemesis.end()
}

// leader is the place of the node that most likely leads now; the first place when none is known.
func (w *world) leader() int {
	for _, n := range w.fleet.Nodes {
		if !n.Running() {
			continue
		}
		var s health.ClusterStatus
		if _, err := n.Ask(w.ctx, http.MethodGet, "/v1/cluster/status", nil, struct{}{}, &s); err != nil {
			continue
		}
		for _, led := range w.fleet.Nodes {
			if led.ID == s.Leader.Node && led.Running() {
				return led.Place()
			}
		}
	}
	return 0
}

// start runs a daemon again as soon as nothing is left of its last incarnation.
// A token is only used by a node that has not joined yet.
func (w *world) start(n *bubble.Node) {
	switch {
	case n.Running():
		return
	case !n.Gone():
		w.nemesis.after(look, func() { w.start(n) })
		return
	}
	switch err := n.Start(daemon.Start{Token: w.tokens[n]}); {
	case errors.Is(err, raftnode.ErrStoreStalled) && w.disks[n.Place()].hungLately(): // it was told to end while its log hung: the process ends with that, too
		w.note("%v", err)
		w.nemesis.unhang(n)
		w.nemesis.after(restartAfter, func() { w.start(n) })
	case err != nil:
		w.problem("%s did not start again: %v", n.Name, err)
	default:
		w.places[n.Place()].Store(n)
	}
}

// kill ends a daemon as a signal does.
func (w *world) kill(n *bubble.Node) {
	w.disks[n.Place()].release()
	n.Kill()
}
