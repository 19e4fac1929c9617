//go:build chaos

// Each fault for a while on a fleet of its own: terms and epochs are counted before and after.

package elections

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/record"
)

const (
	suite = "elections" // of the record
	role  = fsm.SchedulerLeader
	bound = 90 * time.Second // of one step
	// atOnce is how soon a restarted leader holds its port again.
	atOnce = 50 * time.Millisecond
	// campaigned is what a daemon logs when it campaigns early, timedOut when its timers end.
	campaigned = "campaigning early"
	timedOut   = "heartbeat timeout reached, starting election"
	// established is what it logs when it leads after an election.
	established = "leadership established"
)

// cost is what a time of faults may cost: deaths of the leader, each one term
// and one epoch of the role; and of how many of them the leader was back at once.
type cost struct{ deaths, atOnce int }

// line is one fault. It runs until ctx ends and returns what that may have cost.
type line struct {
	name     string
	late     bool // refusals do not arrive: elections wait for the timers
	needsNet bool // the fault is one of the daemons' own networks
	fault    func(ctx context.Context, t *testing.T, f *fleet.Fleet) cost
}

func lines() []line {
	return []line{
		{name: "probes are refused while QUIC passes", needsNet: true, fault: refuseProbes},
		{name: "ICMP is dropped, followers die", late: true, fault: dropICMP(killFollower)},
		{name: "ICMP is dropped, leaders die", late: true, fault: dropICMP(killLeader)},
		{name: "a follower is paused for 10 s", fault: pauseFollower},
		{name: "a learner is present", fault: killLearner},
		{name: "the leader is back on its port at once", fault: restartLeader},
	}
}

// TestChaosElections runs lines side by side, as many as -test.parallel says: what they ask for is no speed.
func TestChaosElections(t *testing.T) {
	counts := record.Begin(t, suite)
	var starts sync.Mutex // a fleet's start is the work of many, what follows is not
	for _, l := range lines() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			f := func() *fleet.Fleet {
				starts.Lock()
				defer starts.Unlock() // also when it fails
				return start(t)
			}()
			run(t, f, l, counts)
		})
	}
}

// TestChaosElectionsBusy has every core busy with something else.
func TestChaosElectionsBusy(t *testing.T) {
	counts := record.Begin(t, suite)
	run(t, start(t), line{name: "all cores are busy", fault: burn}, counts)
}

func run(t *testing.T, f *fleet.Fleet, l line, counts *record.Suite) {
	minutes, err := strconv.ParseFloat(os.Getenv("FORGEYARD_CHAOS_ELECTION_MINUTES"), 64)
	require.NoError(t, err, "FORGEYARD_CHAOS_ELECTION_MINUTES says how long each line lasts")
	if !f.Namespaced() {
		t.Log("not privileged: a relay between the daemons swallows refusals, so no election can be early")
		l.late = true
		if l.needsNet {
			t.Skip("and it can refuse nothing")
		}
	}
	settle(t, f)
	term, epochs, leaders := highestTerm(t, f), granted(t, f), logged(t, f, established)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(minutes*float64(time.Minute)))
	defer cancel()
	began := time.Now()
	allowed := l.fault(ctx, t, f)
	lasted := time.Since(began)
	settle(t, f)
	terms, grants := highestTerm(t, f)-term, granted(t, f)-epochs
	t.Logf("%s: %s, %d deaths of the leader, %d terms, %d epochs of %s, %d early campaigns, %d by timers",
		l.name, lasted.Round(time.Second), allowed.deaths, terms, grants, role, logged(t, f, campaigned), logged(t, f, timedOut))
	require.EqualValues(t, allowed.deaths, grants, "epochs")
	require.EqualValues(t, allowed.deaths, logged(t, f, established)-leaders, "leaders")
	if l.late && allowed.deaths > 0 {
		// Under the timers two candidates may split the votes: that costs a term and no leader.
		require.Zero(t, logged(t, f, campaigned))
		require.GreaterOrEqual(t, terms, uint64(allowed.deaths))
		require.LessOrEqual(t, terms, uint64(allowed.deaths+splits(allowed.deaths)), "terms")
	} else {
		require.EqualValues(t, allowed.deaths, terms, "terms")
	}

	// A mechanism that is dead passes everything above: a leader's death must still be answered, and at once.
	// A kernel refuses one host six datagrams and then one a second. What QUIC still sends to the dead port
	// may use them up before a question is asked: then it is the timers' turn, and the next death's.
	deaths, early := allowed.deaths, false
	for try := 0; try < 8 && !early; try++ { // with several fleets at a time about one death in three was seen to wait for the timers
		pass(t.Context(), 12*time.Second)
		before := logged(t, f, campaigned)
		took := kill(t, f)
		deaths++
		early = logged(t, f, campaigned) > before
		t.Logf("%s: another leader after %s, early: %v", l.name, took.Round(time.Millisecond), early)
		require.EqualValues(t, deaths, logged(t, f, established)-leaders, "leaders")
		if l.late {
			break
		}
	}
	require.Equal(t, !l.late, early)
	if f.Namespaced() {
		counts.Add(l.name+": seconds", int(lasted.Seconds()))
		if allowed.atOnce > 0 {
			counts.Add(l.name+": within "+atOnce.String(), allowed.atOnce)
		}
	}
}

// splits is how many of so many elections by timers may split their votes.
func splits(elections int) int { return 1 + elections/4 }

func start(t *testing.T) *fleet.Fleet {
	bin := os.Getenv("FORGEYARD_BIN")
	if bin == "" {
		bin = filepath.Join(t.TempDir(), "forgeyard")
		text, err := exec.Command("go", "build", "-o", bin, "github.com/forgeyard/forgeyard/cmd/forgeyard").CombinedOutput()
		require.NoError(t, err, string(text))
	}
	dir, err := os.MkdirTemp("", "fye")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*bound)
	defer cancel()
	f, err := fleet.Start(ctx, fleet.Options{
		Dir: dir, Binary: bin, Agents: 1, Namespaces: true, Trace: true,
		Env: []string{fleet.CheapJobs},
	})
	require.NoError(t, err, "logs are kept in %s", dir)
	t.Cleanup(func() {
		stop, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		require.NoError(t, f.Stop(stop))
		if t.Failed() {
			t.Logf("logs are kept in %s", dir)
			return
		}
		require.NoError(t, os.RemoveAll(dir))
	})
	return f
}

// pass lets time go by; false when ctx ended first.
func pass(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// settle waits until all three voters are healthy and every role is active.
func settle(t *testing.T, f *fleet.Fleet) {
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	for _, n := range f.Nodes() {
		_, err := n.WaitStatus(ctx, "a healthy fleet", func(s health.ClusterStatus) bool {
			return s.Quorum.VotersHealthy == 3 && s.Roles.Active == s.Roles.Runnable
		})
		require.NoError(t, err, n.Name)
	}
}

func highestTerm(t *testing.T, f *fleet.Fleet) (term uint64) {
	for _, n := range f.Nodes() {
		if n.State() != "running" {
			continue
		}
		s, err := n.Status(t.Context())
		require.NoError(t, err)
		term = max(term, s.Term)
	}
	return term
}

// granted counts the epochs under which the role was granted, by the daemons' own traces.
func granted(t *testing.T, f *fleet.Fleet) int {
	epochs := map[fsm.Epoch]bool{}
	for _, n := range f.Nodes() {
		events, err := trace.Read(n.TraceFile())
		require.NoError(t, err)
		for _, e := range events {
			if e.Kind == trace.Grant && e.Role == role {
				epochs[e.Epoch] = true
			}
		}
	}
	return len(epochs)
}

// logged counts the lines of the daemons' logs that hold a text.
func logged(t *testing.T, f *fleet.Fleet, text string) (n int) {
	for _, d := range f.Nodes() {
		b, err := os.ReadFile(d.LogFile())
		require.NoError(t, err)
		n += strings.Count(string(b), text)
	}
	return n
}

func leader(t *testing.T, f *fleet.Fleet) *fleet.Node {
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	n, err := f.Leader(ctx)
	require.NoError(t, err)
	return n
}

// kill ends the leader with SIGKILL, returns how long another one took, and starts it again.
func kill(t *testing.T, f *fleet.Fleet) time.Duration {
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	old := leader(t, f)
	require.NoError(t, old.Kill())
	at := time.Now()
	next, err := f.Leader(ctx)
	require.NoError(t, err)
	took := time.Since(at)
	require.NotEqual(t, old.ID, next.ID)
	require.NoError(t, old.Resume(ctx))
	settle(t, f)
	return took
}

// refuseProbes begins and ends to refuse, over and over: the echo that a refusal
// needs is always a moment old when it begins.
func refuseProbes(ctx context.Context, t *testing.T, f *fleet.Fleet) cost {
	for on := true; pass(ctx, 3*time.Second); on = !on {
		require.NoError(t, f.RefuseProbes(leader(t, f), on))
	}
	for _, n := range f.Nodes() {
		require.NoError(t, f.RefuseProbes(n, false))
	}
	refused, err := f.Refusals()
	require.NoError(t, err)
	t.Logf("%d probes refused", refused)
	require.NotZero(t, refused)
	return cost{}
}

// dropICMP has processes die unnoticed: no refusal arrives.
func dropICMP(death func(*testing.T, *fleet.Fleet) int) func(context.Context, *testing.T, *fleet.Fleet) cost {
	return func(ctx context.Context, t *testing.T, f *fleet.Fleet) (c cost) {
		if f.Namespaced() {
			require.NoError(t, f.DropICMP(true))
		}
		for more := true; more; more = pass(ctx, 45*time.Second) {
			c.deaths += death(t, f)
		}
		if f.Namespaced() {
			dropped, err := f.ICMPDropped()
			require.NoError(t, err)
			t.Logf("%d packets of ICMP dropped", dropped)
			require.NotZero(t, dropped)
		}
		return c
	}
}

func killLeader(t *testing.T, f *fleet.Fleet) int {
	t.Logf("killed: another leader after %s", kill(t, f).Round(time.Millisecond))
	return 1
}

// killFollower keeps a follower dead for longer than the leader would take to notice it.
func killFollower(t *testing.T, f *fleet.Fleet) int {
	leads := leader(t, f)
	n := f.Nodes()[slices.IndexFunc(f.Nodes(), func(n *fleet.Node) bool { return n != leads })]
	require.NoError(t, n.Kill())
	pass(t.Context(), 5*time.Second)
	require.NoError(t, n.Resume(t.Context()))
	settle(t, f)
	return 0
}

func pauseFollower(ctx context.Context, t *testing.T, f *fleet.Fleet) cost {
	pauses := 0
	for i := 0; pass(ctx, 5*time.Second); i++ {
		leads := leader(t, f)
		n := f.Nodes()[i%3]
		if n == leads {
			continue
		}
		require.NoError(t, n.Pause(t.Context()))
		pass(t.Context(), 10*time.Second)
		require.NoError(t, n.Resume(t.Context()))
		pauses++
	}
	t.Logf("%d pauses", pauses)
	require.NotZero(t, pauses)
	return cost{}
}

func killLearner(ctx context.Context, t *testing.T, f *fleet.Fleet) cost {
	start, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	n, err := f.AddLearner(start)
	require.NoError(t, err)
	kills := 0
	for pass(ctx, 20*time.Second) {
		_, err := n.Restart(t.Context())
		require.NoError(t, err)
		kills++
	}
	t.Logf("%d deaths of the learner", kills)
	require.NotZero(t, kills)
	return cost{}
}

func restartLeader(ctx context.Context, t *testing.T, f *fleet.Fleet) (c cost) {
	var gaps []time.Duration
	for pass(ctx, 12*time.Second) {
		gap, err := leader(t, f).Restart(t.Context())
		require.NoError(t, err)
		gaps = append(gaps, gap)
		c.deaths++
		settle(t, f)
	}
	require.NotEmpty(t, gaps)
	slices.Sort(gaps)
	for _, g := range gaps {
		if g <= atOnce {
			c.atOnce++
		}
	}
	t.Logf("%d restarts, the port not held for %s to %s, %d times at most %s", len(gaps), gaps[0], gaps[len(gaps)-1], c.atOnce, atOnce)
	require.GreaterOrEqual(t, 4*c.atOnce, len(gaps), "the fault is a leader that is back at once")
	return c
}

func burn(ctx context.Context, t *testing.T, _ *fleet.Fleet) cost {
	var work sync.WaitGroup
	var turns atomic.Uint64
	for range runtime.NumCPU() {
		work.Go(func() {
			for ctx.Err() == nil {
				for range 1 << 16 {
					turns.Add(1)
				}
			}
		})
	}
	idle, all := processor(t)
	work.Wait()
	idleAfter, allAfter := processor(t)
	busy := 1 - float64(idleAfter-idle)/float64(allAfter-all)
	t.Logf("the cores were busy for %.0f %% of the time", 100*busy)
	require.Greater(t, busy, 0.9)
	return cost{}
}

// processor reads how long the cores were idle, and how long there was, in ticks.
func processor(t *testing.T) (idle, all uint64) {
	text, err := os.ReadFile("/proc/stat")
	require.NoError(t, err)
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line)[1:9] {
		n, err := strconv.ParseUint(field, 10, 64)
		require.NoError(t, err)
		if all += n; i == 3 || i == 4 { // idle, and idle but for the disk
			idle += n
		}
	}
	return idle, all
}
