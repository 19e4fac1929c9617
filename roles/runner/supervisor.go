// The supervisor: one small process for each attempt, the ancestor of everything the attempt starts.
//
// It adopts what its descendants leave behind, so the tree of an attempt cannot
// be left by a new session or by forking twice. It ends only when nothing of the
// tree runs any more. It kills the tree when its agent says so or is gone, when
// the lease's deadline passes, even if the agent is stopped, and when the tree
// breaks a limit.

package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// The supervisor's own file descriptors.
const (
	ordersFD  = 3
	reportsFD = 4
)

// supervisorOrder is one line from the agent; exactly one field is set.
type supervisorOrder struct {
	Begin    *supervision   `json:"begin,omitempty"`    // first, and once
	Deadline int64          `json:"deadline,omitempty"` // CLOCK_MONOTONIC nanoseconds: kill then
	Ask      uint64         `json:"ask,omitempty"`      // to be answered by Alive
	Stop     *time.Duration `json:"stop,omitempty"`     // SIGTERM now and SIGKILL after it
}

// supervision is what is to be run.
type supervision struct {
	Steps    []Step   `json:"steps"`
	Env      []string `json:"env"`
	Dir      string   `json:"dir"`
	Root     string   `json:"root"`  // whose size is bounded; it holds Dir
	Guard    string   `json:"guard"` // file to hold a shared lock on; "" = none
	Deadline int64    `json:"deadline"`
	Limits   Limits   `json:"limits"`
}

// supervisorReport is one line to the agent.
type supervisorReport struct {
	Alive uint64         `json:"alive,omitempty"`
	End   *supervisorEnd `json:"end,omitempty"` // last
}

type supervisorEnd struct {
	Code   *int   `json:"code,omitempty"`
	Signal string `json:"signal,omitempty"`
	Step   string `json:"step,omitempty"`  // the step that ended so
	Err    string `json:"err,omitempty"`   // a step could not be started
	Limit  string `json:"limit,omitempty"` // the bound that the tree broke
	Late   bool   `json:"late,omitempty"`  // the deadline passed
}

// Supervise is the whole life of a supervisor process; main calls it and exits.
// Process.Supervisor names the command that does.
func Supervise() error {
	// PR_SET_PDEATHSIG of the steps names the thread that started them.
	runtime.LockOSThread()
	if err := becomeAncestor(); err != nil {
		return err
	}
	// Caught and dropped, not ignored: an ignored signal would be ignored by the steps too.
	dropped := make(chan os.Signal, 1)
	signal.Notify(dropped, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	syscall.Umask(0o022)

	in := json.NewDecoder(os.NewFile(ordersFD, "orders"))
	var first supervisorOrder
	if err := in.Decode(&first); errors.Is(err, io.EOF) {
		return nil // the agent had nothing more to run, or is gone
	} else if err != nil {
		return fmt.Errorf("supervisor: an agent starts this command and tells it what to do: %w", err)
	}
	if first.Begin == nil {
		return errors.New("supervisor: the first order is not to begin")
	}
	s := &supervisor{task: *first.Begin, reports: json.NewEncoder(os.NewFile(reportsFD, "reports")), children: make(chan os.Signal, 1)}
	signal.Notify(s.children, syscall.SIGCHLD)
	if err := s.prepare(); err != nil {
		return s.report(supervisorReport{End: &supervisorEnd{Err: err.Error()}})
	}
	orders := make(chan supervisorOrder)
	go readOrders(in, orders) // ends with the process
	s.run(orders)
	return s.report(supervisorReport{End: &s.end})
}

// readOrders closes orders when the agent is gone.
func readOrders(in *json.Decoder, orders chan<- supervisorOrder) {
	defer close(orders)
	for {
		var o supervisorOrder
		if err := in.Decode(&o); err != nil {
			return
		}
		orders <- o
	}
}

// killEvery is how often the kill is repeated while something of the tree is left.
const killEvery = 10 * time.Millisecond

type supervisor struct {
	task     supervision
	reports  *json.Encoder
	children chan os.Signal // SIGCHLD
	guard    *os.File
	watch    *watch

	next  int           // of the steps
	named chan struct{} // closed once the line with the name of the step before next is written; nil: none is
	pid   int           // of the current step's first process; 0 once it has ended
	dying bool          // nothing more is started; the tree is being killed
	end   supervisorEnd
}

func (s *supervisor) report(r supervisorReport) error {
	err := s.reports.Encode(r)
	if errors.Is(err, syscall.EPIPE) {
		return nil // the agent is gone
	}
	return err
}

func (s *supervisor) prepare() error {
	if s.task.Guard != "" {
		f, err := os.OpenFile(s.task.Guard, os.O_CREATE|os.O_RDONLY, 0o600)
		if err != nil {
			return err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
			return fmt.Errorf("lock %s: %w", s.task.Guard, err)
		}
		s.guard = f
	}
	// Programs are looked up as the job would: in its directory, along its path.
	for _, kv := range s.task.Env {
		if len(kv) > 5 && kv[:5] == "PATH=" {
			if err := os.Setenv("PATH", kv[5:]); err != nil {
				return err
			}
		}
	}
	return os.Chdir(s.task.Dir)
}

// run returns when no descendant is left.
func (s *supervisor) run(orders <-chan supervisorOrder) {
	deadline := time.NewTimer(untilMono(s.task.Deadline))
	defer deadline.Stop()
	grace := time.NewTimer(time.Hour)
	grace.Stop()
	s.watch = newWatch(s.task.Root, s.task.Limits)
	defer s.watch.stop()
	s.advance()
	for {
		if childless := s.reap(); childless && s.dying {
			return
		}
		select {
		case o, ok := <-orders:
			switch {
			case !ok:
				orders = nil
				s.kill("")
			case o.Ask != 0:
				_ = s.report(supervisorReport{Alive: o.Ask})
			case o.Deadline != 0:
				deadline.Reset(untilMono(o.Deadline))
			case o.Stop != nil && *o.Stop > 0 && s.pid != 0:
				s.next = len(s.task.Steps) // the step may heed the signal; none follows it
				_ = syscall.Kill(-s.pid, syscall.SIGTERM)
				grace.Reset(*o.Stop)
			case o.Stop != nil:
				s.kill("")
			}
		case <-deadline.C:
			s.end.Late = s.end.Late || !s.dying
			s.kill("")
		case <-grace.C:
			s.kill("")
		case <-s.named:
			s.named = nil
			s.begin()
		case <-s.children:
		case <-s.watch.due():
			if s.dying {
				killTree()
				s.watch.again(killEvery)
			} else if broken := s.watch.check(); broken != "" {
				s.kill(broken)
			}
		case broken := <-s.watch.disk:
			s.kill(broken)
		}
	}
}

// advance goes on to the next step, or begins the end when there is none. The line
// that names a step goes the way of its output, which nobody may be reading: a stopped
// agent does not. It is not waited for here, or no deadline would be kept meanwhile.
func (s *supervisor) advance() {
	if s.dying {
		return
	}
	if s.next >= len(s.task.Steps) {
		s.kill("")
		return
	}
	name := s.task.Steps[s.next].Name
	s.next++
	s.end = supervisorEnd{Step: name}
	if name == "" {
		s.begin()
		return
	}
	written := make(chan struct{})
	s.named = written
	go func() { // ends with the process at the latest
		defer close(written)
		_, _ = fmt.Fprintf(os.Stdout, "== step %s\n", name)
	}()
}

// begin starts the step that advance went on to.
func (s *supervisor) begin() {
	if s.dying {
		return
	}
	var err error
	if s.pid, err = startStep(s.task.Steps[s.next-1].Argv, s.task.Env); err != nil {
		s.pid, s.end.Err = 0, err.Error()
		s.kill("")
	}
}

func startStep(argv, env []string) (int, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return 0, fmt.Errorf("start: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, fmt.Errorf("start: %w", err)
	}
	defer null.Close()
	pid, err := fork(func() (int, error) {
		return syscall.ForkExec(path, argv, &syscall.ProcAttr{
			Env: env, Files: []uintptr{null.Fd(), os.Stdout.Fd(), os.Stdout.Fd()}, Sys: stepAttributes(),
		})
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", path, err)
	}
	return pid, nil
}

// reap buries what has ended and reports whether no child is left, and so no
// descendant: orphans become children.
func (s *supervisor) reap() (childless bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return true // ECHILD
		case pid == 0:
			return false
		case pid == s.pid:
			s.ended(ws)
		}
	}
}

// ended notes how a step ended; the next one follows one that succeeded.
func (s *supervisor) ended(ws syscall.WaitStatus) {
	s.pid = 0
	if ws.Signaled() {
		s.end.Signal = ws.Signal().String()
		s.kill("")
		return
	}
	code := ws.ExitStatus()
	s.end.Code = &code
	if code != 0 {
		s.kill("")
		return
	}
	s.advance()
}

// kill begins the end of the whole tree; limit says which bound it broke, if that is why.
func (s *supervisor) kill(limit string) {
	if !s.dying {
		s.dying, s.end.Limit = true, limit
	}
	if s.pid != 0 {
		_ = syscall.Kill(-s.pid, syscall.SIGKILL) // not reaped yet: the group is its own
	}
	killTree()
	s.watch.again(killEvery)
}

// exit makes an Exit of the last report.
func (e supervisorEnd) exit() Exit {
	x := Exit{Code: e.Code, Signal: e.Signal, Step: e.Step, Limit: e.Limit, Late: e.Late}
	if e.Err != "" {
		x.Err = errors.New(e.Err)
	}
	return x
}
