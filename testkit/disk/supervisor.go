// Starts a supervised process, carries out its file operations one after the other and records them.

package disk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Process is a supervised process.
type Process struct {
	cmd      *exec.Cmd
	dir      string // operations on files below it are recorded
	pidfd    int
	listener int

	mu     sync.Mutex
	events []Event
	faults []*activeFault

	loop, held sync.WaitGroup
	ended      chan struct{}
	failed     error // of the loop; read after loop
}

// Start starts cmd, which must call Confine or Become first, and supervises what it does below
// dir. The caller must call Wait.
func Start(cmd *exec.Cmd, dir string, faults ...Fault) (*Process, error) {
	resolved, err := filepath.EvalSymlinks(dir) // the kernel names files without links
	if err != nil {
		return nil, err
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket pair: %w", err)
	}
	theirs := os.NewFile(uintptr(ends[1]), "supervised")
	defer unix.Close(ends[0])
	cmd.Env = append(cmd.Environ(), envSupervised+"=1")
	cmd.ExtraFiles = []*os.File{theirs}
	err = cmd.Start()
	if err := errors.Join(err, theirs.Close()); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, dir: resolved, ended: make(chan struct{})}
	for _, f := range faults {
		p.faults = append(p.faults, &activeFault{Fault: f})
	}
	if err := p.takeOver(ends[0]); err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	p.loop.Go(p.serve)
	return p, nil
}

// Inject adds a fault to those given to Start, behind them.
func (p *Process) Inject(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, &activeFault{Fault: f})
}

// takeOver receives the listener and lets the process go on.
func (p *Process) takeOver(socket int) error {
	oob := make([]byte, unix.CmsgSpace(4))
	// Bounded: a process that never confines itself is a mistake in the test.
	end := time.Now().Add(2 * time.Minute)
	var n int
	err := uninterrupted(func() (err error) {
		left := unix.NsecToTimeval(max(time.Until(end), time.Millisecond).Nanoseconds()) // 0 would be no bound
		if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &left); err != nil {
			return fmt.Errorf("bound the wait: %w", err)
		}
		_, n, _, _, err = unix.Recvmsg(socket, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for the listener: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return fmt.Errorf("the process sent no listener: %w", err)
	}
	rights, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(rights) != 1 {
		return fmt.Errorf("the process sent no listener: %w", err)
	}
	p.listener = rights[0]
	if p.pidfd, err = unix.PidfdOpen(p.cmd.Process.Pid, 0); err != nil {
		return errors.Join(fmt.Errorf("pidfd: %w", err), unix.Close(p.listener))
	}
	return uninterrupted(func() error { return unix.Sendmsg(socket, []byte{0}, nil, nil, 0) })
}

// uninterrupted makes a system call again for as long as a signal ends it. Go sends itself
// signals, and the kernel begins again by itself only what waits without a bound.
func uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Kill ends the process at once, as SIGKILL does.
func (p *Process) Kill() error { return p.cmd.Process.Kill() }

// Ended reports whether the process has ended. Wait must be called all the same.
func (p *Process) Ended() bool {
	var n int
	err := uninterrupted(func() (err error) {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}, 0)
		return err
	})
	return err == nil && n > 0
}

// Wait waits for the end of the process and of the supervision. Its error is the process' own.
func (p *Process) Wait() error {
	err := p.cmd.Wait()
	close(p.ended)
	p.loop.Wait()
	p.held.Wait()
	return errors.Join(err, p.failed, unix.Close(p.listener), unix.Close(p.pidfd))
}

// Events are the operations so far, in the order in which they were carried out.
func (p *Process) Events() []Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.events[:len(p.events):len(p.events)]
}

// Hits says how often each fault happened, in the order given to Start and Inject.
func (p *Process) Hits() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	hits := make([]int, len(p.faults))
	for i, f := range p.faults {
		hits[i] = f.hit
	}
	return hits
}

// The kernel's structures of a notification and its answer.
type (
	notification struct {
		id         uint64
		pid, flags uint32
		nr         int32
		arch       uint32
		ip         uint64
		args       [6]uint64
	}
	answer struct {
		id    uint64
		value int64
		errno int32
		flags uint32
	}
)

// serve answers notifications until the process has ended.
func (p *Process) serve() {
	for {
		ready := []unix.PollFd{{Fd: int32(p.listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, 1000); err != nil && !errors.Is(err, unix.EINTR) {
			p.failed = fmt.Errorf("poll: %w", err)
			return
		}
		select {
		case <-p.ended:
			return
		default:
		}
		if ready[0].Revents&unix.POLLIN == 0 {
			if ready[0].Revents != 0 {
				<-p.ended // nobody is left to notify
				return
			}
			continue
		}
		var n notification
		switch err := ioctl(p.listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT): // ENOENT: the caller was killed meanwhile
			continue
		case err != nil:
			p.failed = fmt.Errorf("receive a notification: %w", err)
			return
		}
		p.handle(n)
	}
}

// handle decides one operation and answers it.
func (p *Process) handle(n notification) {
	op, err := p.decode(n)
	if err != nil {
		// Not knowing what it does would make the record wrong: it must not do it.
		p.answer(answer{id: n.id, errno: -int32(unix.EUCLEAN)})
		return
	}
	if op == nil {
		p.answer(answer{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE})
		return
	}
	fault := p.fault(op.event)
	if fault.Delay == 0 {
		p.carryOut(n, op, fault)
		return
	}
	p.held.Go(func() {
		var after <-chan time.Time
		if fault.Delay != Hang {
			after = time.After(fault.Delay)
		}
		select {
		case <-p.ended:
			op.close() // or what the process had locked stays locked
		case <-after:
			p.carryOut(n, op, fault)
		}
	})
}

// fault returns the first one that hits.
func (p *Process) fault(e Event) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		if f.take(e.Op, e.Path) {
			return f.Fault
		}
	}
	return Fault{}
}

func (p *Process) carryOut(n notification, op *operation, fault Fault) {
	p.mu.Lock() // one after the other: the order of the record is the order on the disk
	defer p.mu.Unlock()
	errno := fault.Errno
	a := answer{id: n.id}
	if errno == 0 {
		a.value, errno = op.run()
	}
	op.close()
	switch op.event.Errno = errno; {
	case errno != 0:
		a.errno = -int32(errno)
	case op.proceed:
		a.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
	}
	p.events = append(p.events, op.event)
	p.answer(a)
}

func (p *Process) answer(a answer) {
	// It fails only when the caller was killed meanwhile.
	_ = uninterrupted(func() error { return ioctl(p.listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a)) })
}

func ioctl(fd int, request uint, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// below returns the path relative to the supervised directory.
func (p *Process) below(path string) (string, bool) {
	rel, err := filepath.Rel(p.dir, path)
	return rel, err == nil && filepath.IsLocal(rel)
}
