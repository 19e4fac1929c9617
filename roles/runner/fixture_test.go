// The fixture of these tests: a real database, leases made by raw fenced SQL, daemons and agents linked in memory.

package runner_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/runner/runnertest"
	"github.com/forgeyard/forgeyard/roles/store"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 2 && os.Args[1] == supervise: // this process supervises one task, see Process.Supervisor
		if err := runner.Supervise(); err != nil {
			panic(err)
		}
		os.Exit(0)
	case len(os.Args) == 3 && os.Args[1] == execute: // this process plays an agent
		playAgent(os.Args[2])
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// What this test binary does instead of testing when it is its only argument.
const (
	supervise = "supervise"
	execute   = "execute" // and a directory: run the script in it as a task, whose lease lasts 2 s
)

// processes execute tasks below this test binary.
func processes() runner.Process {
	return runner.Process{Supervisor: []string{os.Args[0], supervise}, Grace: 100 * time.Millisecond}
}

const soon = 30 * time.Second

// quick keeps the protocol's shape at a fifth of its times and less.
var quick = runner.Timing{
	LeaseTTL: 20 * time.Second, Heartbeat: 100 * time.Millisecond, Margin: time.Second,
	Retry: 100 * time.Millisecond, Poll: 10 * time.Millisecond, Claim: 200 * time.Millisecond, Blind: 300 * time.Millisecond,
}

type plane struct {
	*testing.T
	super *pgx.Conn
	store *store.Store
	net   *runnertest.Network
	epoch int64
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	p := &plane{T: t, net: runnertest.NewNetwork()}
	db := pgtest.New(t)
	var err error
	p.store, err = store.Open(t.Context(), store.Config{Owner: db.Owner, App: db.App, Direct: db.Direct, Cluster: cluster.NewClusterID()})
	require.NoError(t, err)
	t.Cleanup(p.store.Close)
	require.NoError(t, p.store.Migrate(t.Context()))
	p.super, err = pgx.Connect(t.Context(), db.Super)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.super.Close(context.Background())) })
	t.Cleanup(p.net.Close)
	p.raise(7)
	return p
}

func (p *plane) raise(epoch int64) {
	p.Helper()
	p.epoch = epoch
	p.exec(`SELECT coordination.raise_fence(1::smallint, 1, $1, 'node', 'process')`, epoch)
}

// fenced runs leader-owned SQL as the scheduler would.
func (p *plane) fenced(sql string, args ...any) {
	p.Helper()
	b := &pgx.Batch{}
	b.Queue(`SELECT coordination.fence(1::smallint, 1, $1)`, p.epoch)
	b.Queue(sql, args...)
	require.NoError(p, p.super.SendBatch(p.Context(), b).Close())
}

func (p *plane) exec(sql string, args ...any) int64 {
	p.Helper()
	tag, err := p.super.Exec(p.Context(), sql, args...)
	require.NoError(p, err)
	return tag.RowsAffected()
}

func one[T any](p *plane, sql string, args ...any) T {
	p.Helper()
	var v T
	require.NoError(p, p.super.QueryRow(p.Context(), sql, args...).Scan(&v))
	return v
}

// lease submits one job and leases it to an agent; it returns the lease.
func (p *plane) lease(agent string, change func(*runner.JobSpec)) string {
	p.Helper()
	job := runner.JobSpec{Name: "job", Argv: []string{"true"}}
	if change != nil {
		change(&job)
	}
	run, _, err := runner.Submit(p.Context(), p.store, runner.RunSpec{Name: "run", Jobs: []runner.JobSpec{job}}, "")
	require.NoError(p, err)
	p.fenced(`WITH j AS (UPDATE forge.jobs SET state = 'leased', attempt = attempt + 1 WHERE run_id = $1 RETURNING id, attempt),
 l AS (INSERT INTO forge.leases (job_id, attempt, agent_id, expires_at) SELECT id, attempt, $2, coordination.clock() + interval '20 s' FROM j RETURNING id, agent_id)
 INSERT INTO forge.dispatch (lease_id, agent_id) SELECT id, agent_id FROM l`, run, agent)
	return one[string](p, `SELECT l.id::text FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id WHERE j.run_id = $1`, run)
}

// daemon starts one under an address, which is its node id too.
func (p *plane) daemon(addr string) *runner.Sessions { return p.daemonOver(addr, p.store) }

func (p *plane) daemonOver(addr string, db runner.Database) *runner.Sessions {
	s := runner.NewSessions(runner.SessionsConfig{Store: db, Node: addr, Timing: quick})
	p.net.Start(addr, s)
	return s
}

// running is an agent that runs.
type running struct {
	*runner.Agent
	dir   string
	stop  func() // gracefully
	ended <-chan struct{}
}

func (p *plane) agent(id, dir string, ex runner.Executor, endpoints ...string) *running {
	p.Helper()
	a, err := runner.NewAgent(runner.AgentConfig{
		Endpoints: endpoints, Dialer: p.net.Dialer(id), Dir: dir, Slots: 4, Executor: ex, Timing: quick,
		Resolve: func(context.Context, string) ([]string, error) { return nil, nil },
	})
	require.NoError(p, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := a.Run(ctx); err != nil {
			p.Error(err)
		}
	}()
	r := &running{Agent: a, dir: dir, ended: ended, stop: func() { cancel(); <-ended }}
	p.Cleanup(r.stop)
	require.Eventually(p, func() bool {
		return one[int](p, `SELECT count(*) FROM forge.agents WHERE id = $1 AND session = $2 AND link IS NOT NULL`, id, a.Session()) == 1
	}, soon, 5*time.Millisecond)
	return r
}

// becomes waits for a lease's state.
func (p *plane) becomes(lease, state string) {
	p.Helper()
	require.Eventually(p, func() bool {
		return one[string](p, `SELECT state FROM forge.leases WHERE id = $1::text::uuid`, lease) == state
	}, soon, 5*time.Millisecond, "lease %s never became %s", lease, state)
}

func (p *plane) accepted(lease string) {
	p.Helper()
	require.Eventually(p, func() bool {
		return one[bool](p, `SELECT accepted_at IS NOT NULL FROM forge.leases WHERE id = $1::text::uuid`, lease)
	}, soon, 5*time.Millisecond)
}

// entries reads an agent's own log.
func entries(t testing.TB, dir string, what runner.EntryKind) []runner.Entry {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, runner.StartsFile))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	var all []runner.Entry
	for line := range strings.Lines(string(b)) {
		var e runner.Entry
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		if e.What == what {
			all = append(all, e)
		}
	}
	return all
}

// gate is an executor whose tasks wait until they are let go.
type gate struct {
	mu      sync.Mutex
	started map[string]int
	open    chan struct{}
}

func newGate() *gate { return &gate{started: map[string]int{}, open: make(chan struct{})} }

func (g *gate) Run(ctx context.Context, t runner.Task, out io.Writer) runner.Exit {
	g.mu.Lock()
	g.started[t.Lease]++
	open := g.open
	g.mu.Unlock()
	select {
	case <-ctx.Done():
		return runner.Exit{Signal: "killed"}
	case <-open:
		_, _ = io.WriteString(out, "done\n")
		return exit(0)
	}
}

// let lets go every task that waits; shut makes later ones wait again.
func (g *gate) let() { close(g.open) }

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gate) starts(lease string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.started[lease]
}

func exit(code int) runner.Exit { return runner.Exit{Code: &code} }

func appendEntry(t testing.TB, dir string, e runner.Entry) {
	t.Helper()
	line, err := runner.EncodeLine(e)
	require.NoError(t, err)
	f, err := os.OpenFile(filepath.Join(dir, runner.StartsFile), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.Write(line)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func fsmGeneration(n int) fsm.Generation { return fsm.Generation(n) }
func fsmEpoch(n int) fsm.Epoch           { return fsm.Epoch(n) }
