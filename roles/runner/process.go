// The process executor: the agent's side of an attempt's supervisor.

package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Process runs tasks as processes of this machine, each task below a supervisor
// process of its own (supervisor.go).
type Process struct {
	// Supervisor is a command that calls Supervise.
	Supervisor []string
	// Grace is how long a task has between SIGTERM and SIGKILL; 0 means 5 s. A
	// task whose lease has ended, or is about to, has none: the margin before the
	// deadline is for the kill, not for the task.
	Grace  time.Duration
	Limits Limits
}

// stuckBound is how long a supervisor may take for the kill before it is killed
// itself, and how long its leftovers are looked for then. A supervisor has
// nothing to wait for but the kernel.
const stuckBound = 10 * time.Second

// Run executes the steps of t in order below one supervisor and waits until
// nothing of them runs. When ctx ends the step gets SIGTERM and the whole tree,
// after the grace, SIGKILL. What the steps leave behind is killed at their end.
func (p Process) Run(ctx context.Context, t Task, output io.Writer) Exit {
	s, err := p.start()
	if err != nil {
		return Exit{Err: err}
	}
	return s.wait(ctx, p, t, output)
}

// supervised is a supervisor process and the agent's ends of its pipes.
type supervised struct {
	cmd     *exec.Cmd
	output  *os.File
	reports *os.File
	orders  *orders
	ended   chan struct{} // closed once err is set
	err     error
}

// start starts a supervisor that waits to be told what to run.
func (p Process) start() (_ *supervised, err error) {
	if len(p.Supervisor) == 0 {
		return nil, errors.New("start: no supervisor command")
	}
	var opened []*os.File
	pipe := func() (r, w *os.File) {
		if err != nil {
			return nil, nil
		}
		if r, w, err = os.Pipe(); err == nil {
			opened = append(opened, r, w)
		}
		return r, w
	}
	outR, outW := pipe()
	ordersR, ordersW := pipe()
	reportsR, reportsW := pipe()
	if err == nil {
		cmd := exec.Command(p.Supervisor[0], p.Supervisor[1:]...)
		cmd.Dir = "/"                      // it goes to the task's directory itself
		cmd.Env = []string{"GOMAXPROCS=2"} // nothing of the agent's environment: its descendants could read it
		cmd.Stdout, cmd.Stderr = outW, os.Stderr
		cmd.ExtraFiles = []*os.File{ordersR, reportsW} // ordersFD, reportsFD
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err = cmd.Start(); err == nil {
			for _, f := range []*os.File{outW, ordersR, reportsW} {
				_ = f.Close() // the supervisor has its own copy
			}
			s := &supervised{cmd: cmd, output: outR, reports: reportsR, orders: newOrders(ordersW), ended: make(chan struct{})}
			go func() { // ends with the process; wait and discard wait for it
				defer close(s.ended)
				s.err = cmd.Wait()
			}()
			return s, nil
		}
	}
	for _, f := range opened {
		_ = f.Close()
	}
	return nil, fmt.Errorf("start the supervisor: %w", err)
}

// discard ends a supervisor that was given nothing to run.
func (s *supervised) discard() {
	s.orders.close()
	<-s.ended
	_, _ = s.output.Close(), s.reports.Close()
}

func (s *supervised) wait(ctx context.Context, p Process, t Task, output io.Writer) Exit {
	env := Environment(t)
	s.orders.add(supervisorOrder{Begin: &supervision{
		Steps: t.Steps, Env: env, Dir: t.Dir, Root: t.root(), Guard: t.Guard, Deadline: monoOf(t.Life.Deadline()), Limits: p.Limits,
	}})
	t.Life.watch(s.orders.ask, s.orders.extend)
	defer t.Life.watch(nil, nil)

	var parts sync.WaitGroup
	parts.Go(s.orders.write)
	parts.Go(func() { _, _ = io.Copy(output, s.output) }) // ends when nothing of the tree holds the pipe, or it is closed below
	var end *supervisorEnd
	parts.Go(func() { end = s.listen(t.Life) })
	parts.Go(func() { s.stopOn(ctx, p.Grace) })

	<-s.ended
	s.orders.close()
	var left error
	if s.err != nil {
		// Its descendants have been given to some other process; all that still tells them is their environment.
		left = killMarked(t.Lease, stuckBound)
	}
	// A process outside of the tree may have been handed the pipe.
	late := time.AfterFunc(drainBound, func() { _ = s.output.Close(); _ = s.reports.Close() })
	parts.Wait()
	late.Stop()
	_, _ = s.output.Close(), s.reports.Close()
	if end == nil {
		return Exit{Err: fmt.Errorf("its supervisor ended early: %w", errors.Join(s.err, left, errors.New(s.cmd.ProcessState.String())))}
	}
	return end.exit()
}

// drainBound is how long the output of an ended task is still read.
const drainBound = time.Second

// listen reads what the supervisor reports, to its end.
func (s *supervised) listen(life *Lifeline) (end *supervisorEnd) {
	for d := json.NewDecoder(s.reports); ; {
		var r supervisorReport
		if err := d.Decode(&r); err != nil {
			return end
		}
		if r.Alive != 0 {
			life.Show()
		}
		if r.End != nil {
			end = r.End
		}
	}
}

// stopOn makes the supervisor kill its tree once ctx ends.
func (s *supervised) stopOn(ctx context.Context, grace time.Duration) {
	select {
	case <-s.ended:
		return
	case <-ctx.Done():
	}
	if grace <= 0 {
		grace = 5 * time.Second
	}
	if why := context.Cause(ctx); errors.Is(why, errDeadline) || errors.Is(why, errDropped) {
		grace = 0 // the next attempt may start when the lease ends
	}
	s.orders.add(supervisorOrder{Stop: &grace})
	_ = s.cmd.Process.Signal(syscall.SIGCONT) // its job may have stopped it
	t := time.NewTimer(grace + stuckBound)
	defer t.Stop()
	select {
	case <-s.ended:
	case <-t.C:
		_ = s.cmd.Process.Kill()
	}
}

// orders are what the agent tells a supervisor. Telling never blocks, whatever
// the supervisor does: of deadlines and questions only the newest counts.
type orders struct {
	w    *os.File
	wake chan struct{}

	mu       sync.Mutex
	queue    []supervisorOrder // begin and stop
	asked    uint64            // questions so far
	asking   bool              // the last one is not sent yet
	deadline int64             // not sent yet; 0: none
	closed   bool
}

func newOrders(w *os.File) *orders { return &orders{w: w, wake: make(chan struct{}, 1)} }

func (o *orders) change(f func()) {
	o.mu.Lock()
	f()
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *orders) add(one supervisorOrder) { o.change(func() { o.queue = append(o.queue, one) }) }
func (o *orders) ask()                    { o.change(func() { o.asked++; o.asking = true }) }
func (o *orders) extend(to time.Time)     { o.change(func() { o.deadline = monoOf(to) }) }

// close ends write, also one that blocks.
func (o *orders) close() {
	o.change(func() { o.closed = true })
	_ = o.w.Close()
}

// write sends orders until close. The supervisor's end shows elsewhere.
func (o *orders) write() {
	enc := json.NewEncoder(o.w)
	for range o.wake {
		o.mu.Lock()
		out := o.queue
		o.queue = nil
		if o.deadline != 0 {
			out = append(out, supervisorOrder{Deadline: o.deadline})
		}
		if o.asking {
			out = append(out, supervisorOrder{Ask: o.asked})
		}
		o.deadline, o.asking = 0, false
		closed := o.closed
		o.mu.Unlock()
		if closed {
			return
		}
		for _, one := range out {
			if err := enc.Encode(one); err != nil {
				break
			}
		}
	}
}

// Environment is what the steps of a task run with, as NAME=VALUE: a small base,
// then the job's own variables, then what identifies the attempt. The later
// overrides the earlier, and each name stands once, for of two values programs
// take the one or the other. Nothing else of the agent's environment is passed on.
func Environment(t Task) []string {
	all := map[string]string{"HOME": or(t.Home, t.Dir), "TMPDIR": or(t.Temp, t.Dir), "LANG": "C.UTF-8"}
	if path, ok := os.LookupEnv("PATH"); ok {
		all["PATH"] = path
	}
	maps.Copy(all, t.Env)
	maps.Copy(all, map[string]string{
		"FORGEYARD_RUN": t.Run, "FORGEYARD_JOB": t.Job, "FORGEYARD_LEASE": t.Lease, "FORGEYARD_ATTEMPT": strconv.Itoa(t.Attempt),
	})
	env := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		env = append(env, name+"="+all[name])
	}
	return env
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
