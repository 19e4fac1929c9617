// Traffic: clients that submit jobs through whichever daemon answers, and an executor in process.

package seeds

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/bubble"
	"github.com/forgeyard/forgeyard/testkit/history"
)

// Bounds of the traffic.
const (
	pauseMost  = 1200 * time.Millisecond // between two runs
	clientsMax = 8                       // submissions under way
	tryAgain   = 300 * time.Millisecond  // after an answer that is no verdict
	workMost   = 1500 * time.Millisecond // a job
	slowAnswer = time.Second             // is noted
)

// Programs of jobs. One makes its first attempt fail, one is of the run that fills all slots.
const (
	works      = "work"
	failsFirst = "fail-first"
	fills      = "fill"
)

// traffic is the work that is asked of the fleet.
type traffic struct {
	node func(i int) *bubble.Node // some daemon, running or not; numbers go round
	log  *slog.Logger
	stop context.CancelFunc // no new runs
	work sync.WaitGroup
	room chan struct{} // a token for each submission under way

	mu       sync.Mutex
	rnd      *rand.Rand
	outcomes map[uuid.UUID]history.Outcome
	runs     []string
	jobs     int // of the acknowledged runs
	problems []string
}

// startTraffic submits runs until halt; submissions under way go on until they
// are answered or ctx ends.
func startTraffic(ctx context.Context, seed uint64, node func(i int) *bubble.Node, log *slog.Logger) *traffic {
	tr := &traffic{
		node: node, log: log, rnd: rand.New(rand.NewPCG(seed, 0x7472)), outcomes: map[uuid.UUID]history.Outcome{}, room: make(chan struct{}, clientsMax),
	}
	until, stop := context.WithCancel(ctx)
	tr.stop = stop
	tr.work.Go(func() {
		for i := 0; until.Err() == nil; i++ {
			tr.begin(ctx, until, i)
			pass(until, tr.draw(pauseMost))
		}
	})
	return tr
}

// begin starts one client, when there is room for one more.
func (tr *traffic) begin(ctx, until context.Context, i int) {
	select {
	case tr.room <- struct{}{}:
	case <-until.Done():
		return
	}
	key, spec := tr.next(i)
	tr.work.Go(func() {
		defer func() { <-tr.room }()
		tr.submit(ctx, i, key, spec)
	})
}

// halt ends the submitting of new runs and returns once every client has its answer.
func (tr *traffic) halt() {
	tr.stop()
	tr.work.Wait()
}

// told is what the client of each submission was told so far.
func (tr *traffic) told() map[uuid.UUID]history.Outcome {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return maps.Clone(tr.outcomes)
}

func (tr *traffic) draw(most time.Duration) time.Duration {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return time.Duration(tr.rnd.Float64() * float64(most))
}

// fill submits a run of jobs that each take as long as given, through whichever daemon answers.
func (tr *traffic) fill(ctx context.Context, jobs int, each time.Duration) {
	tr.mu.Lock()
	key := tr.newKey()
	tr.mu.Unlock()
	spec := runner.RunSpec{Name: "fill"}
	for n := range jobs {
		spec.Jobs = append(spec.Jobs, runner.JobSpec{Name: fmt.Sprintf("job-%d", n), Argv: []string{fills, strconv.FormatInt(each.Milliseconds(), 10)}})
	}
	tr.submit(ctx, 0, key, spec)
}

// newKey draws the key of a submission and notes its outcome as open; the caller holds mu.
func (tr *traffic) newKey() (key uuid.UUID) {
	for n := range key {
		key[n] = byte(tr.rnd.Uint32())
	}
	key[6], key[8] = key[6]&0x0f|0x40, key[8]&0x3f|0x80
	tr.outcomes[key] = history.Unknown
	return key
}

// next draws a run: a job or two that others need, one in four of which fails at first.
func (tr *traffic) next(i int) (uuid.UUID, runner.RunSpec) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	key := tr.newKey()
	spec := runner.RunSpec{Name: fmt.Sprintf("run-%d", i), Queue: fmt.Sprintf("queue-%d", i%2)}
	for n := range 1 + tr.rnd.IntN(3) {
		program := works
		if tr.rnd.IntN(4) == 0 {
			program = failsFirst
		}
		job := runner.JobSpec{
			Name: fmt.Sprintf("job-%d", n), Retries: 1, AttemptLimit: runner.MaxAttemptLimit,
			Argv: []string{program, strconv.Itoa(50 + tr.rnd.IntN(int(workMost.Milliseconds())))},
		}
		if n > 0 && tr.rnd.IntN(2) == 0 {
			job.Needs = []string{fmt.Sprintf("job-%d", n-1)}
		}
		spec.Jobs = append(spec.Jobs, job)
	}
	return key, spec
}

// submit asks one daemon after the other until one gives a verdict.
func (tr *traffic) submit(ctx context.Context, i int, key uuid.UUID, spec runner.RunSpec) {
	header := http.Header{runner.IdempotencyHeader: {key.String()}}
	for try := i; ctx.Err() == nil; try++ {
		var run runner.RunDocument
		asked := time.Now()
		status, err := tr.node(try).Ask(ctx, http.MethodPost, "/v1/runs", header, spec, &run)
		if took := time.Since(asked); took > slowAnswer {
			tr.log.Warn("a client waited", "run", i, "asked", tr.node(try).Name, "took", took, "status", status, "err", err)
		}
		switch {
		case err == nil:
			tr.mu.Lock()
			defer tr.mu.Unlock()
			tr.outcomes[key] = history.Acknowledged
			tr.runs, tr.jobs = append(tr.runs, run.ID), tr.jobs+len(spec.Jobs)
			return
		case history.Answered(status) == history.Rejected:
			tr.mu.Lock()
			defer tr.mu.Unlock()
			tr.outcomes[key] = history.Rejected
			tr.problems = append(tr.problems, fmt.Sprintf("run %d was refused: %v", i, err))
			return
		}
		pass(ctx, tryAgain)
	}
}

// pass waits for d of virtual time, or until ctx ends.
func pass(ctx context.Context, d time.Duration) {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}

// work executes jobs in process and counts the starts of each lease.
type work struct {
	mu     sync.Mutex
	starts map[string]int // by lease
	fill   int            // jobs of the run that fills all slots that run now
}

// filling is how many jobs of the run that fills all slots run now.
func (w *work) filling() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fill
}

// Run takes as long as the job's argument says, in milliseconds.
func (w *work) Run(ctx context.Context, task runner.Task, output io.Writer) runner.Exit {
	argv := task.Steps[0].Argv
	fill := 0
	if argv[0] == fills {
		fill = 1
	}
	w.mu.Lock()
	w.starts[task.Lease]++
	w.fill += fill
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.fill -= fill
	}()
	ms, err := strconv.Atoi(argv[1])
	if err != nil {
		return runner.Exit{Err: err}
	}
	_, _ = fmt.Fprintf(output, "attempt %d of %s\n", task.Attempt, task.Job)
	code := 0
	if argv[0] == failsFirst && task.Attempt == 1 {
		code = 1
	}
	select {
	case <-time.After(time.Duration(ms) * time.Millisecond):
		return runner.Exit{Code: &code}
	case <-ctx.Done():
		return runner.Exit{}
	}
}

// twice lists the leases that were started more than once, and says how many were started.
func (w *work) twice() (started int, twice []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for lease, n := range w.starts {
		if n > 1 {
			twice = append(twice, fmt.Sprintf("lease %s was started %d times", lease, n))
		}
	}
	return len(w.starts), twice
}
