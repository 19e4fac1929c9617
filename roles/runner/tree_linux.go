// The process tree below a supervisor, on Linux: adopted whole, listed, and killed whole.

package runner

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// becomeAncestor makes orphans below this process its children, and keeps its
// file descriptors from them.
func becomeAncestor() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("supervisor: become the reaper of orphans: %w", err)
	}
	if _, err := os.Stat(childrenFile(os.Getpid(), os.Getpid())); err != nil {
		return fmt.Errorf("supervisor: the kernel does not list children (CONFIG_PROC_CHILDREN): %w", err)
	}
	// Also those that the agent itself inherited from whoever started it.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("supervisor: keep file descriptors: %w", err)
	}
	comeFirst()
	// A core file of a job is nobody's to read and may be as large as its memory.
	return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
}

// niceness is the one that this process was started with.
var niceness = sync.OnceValue(func() int32 {
	n, _ := unix.Getpriority(unix.PRIO_PROCESS, 0) // of oneself it is always given
	return 20 - int32(n)                           // the system call counts from the other end
})

// first is the highest ordinary priority, and none for children.
var first = unix.SchedAttr{Policy: unix.SCHED_NORMAL, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Nice: -20}

// comeFirst gives this process's threads the highest ordinary priority: a fork
// bomb must not outrun the one that counts and kills it. Without the right to do
// so (root has it) what is left is that the kernel gives each session an equal
// share, where it groups by session.
func comeFirst() {
	_ = niceness()
	threads, _ := os.ReadDir("/proc/self/task") // there is always one
	for _, t := range threads {
		tid, _ := strconv.Atoi(t.Name())
		_ = unix.SchedSetAttr(tid, &first, 0)
	}
}

// fork runs start on a thread, which must be the caller's alone, that has for so
// long the priority that the process was started with: the child inherits it.
func fork(start func() (pid int, err error)) (pid int, err error) {
	if unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_NORMAL, Nice: niceness()}, 0) == nil {
		defer func() { _ = unix.SchedSetAttr(0, &first, 0) }()
	}
	return start()
}

// stepAttributes asks for a session and group of the step's own, apart from the
// terminal and, where the kernel groups by session, with a share of the
// processors of its own; and for SIGKILL when the supervisor dies.
func stepAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// untilMono is how long it is until an instant of CLOCK_MONOTONIC, in nanoseconds.
func untilMono(at int64) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0 // cannot happen; the safe side
	}
	return time.Duration(at - ts.Nano())
}

// stopRounds bounds how often killTree looks for processes that were forked
// while it stopped their parents; the caller repeats it until nothing is left.
const stopRounds = 16

// killTree kills every descendant. All are stopped before one is killed: a tree
// that forks faster than it is killed would outlive it otherwise.
func killTree() {
	stopped := map[int]bool{}
	for range stopRounds {
		fresh := 0
		for pid := range descendants(os.Getpid(), math.MaxInt) {
			if !stopped[pid] {
				stopped[pid] = true
				fresh++
				signalIn(stopped, pid, unix.SIGSTOP)
			}
		}
		if fresh == 0 {
			break
		}
	}
	for pid := range stopped {
		signalIn(stopped, pid, unix.SIGKILL)
	}
}

// signalIn signals a process that is still below this one. Its id may have been
// freed and given away since it was listed, so it is held by a descriptor
// before its parent is looked at again.
func signalIn(tree map[int]bool, pid int, sig unix.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // gone
	}
	defer unix.Close(fd)
	if parent := parentOf(pid); parent == os.Getpid() || tree[parent] {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}

func parentOf(pid int) int {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The name in parentheses may hold anything; the fields after the last one do not.
	s := string(b)
	fields := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}

// descendants lists the processes below root, ended ones that were not reaped
// among them. It may stop once it has found more than most.
func descendants(root, most int) map[int]bool {
	found := map[int]bool{}
	queue := []int{root}
	for len(queue) > 0 && len(found) <= most {
		pid := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
		if err != nil {
			continue // gone
		}
		for _, t := range tasks {
			tid, _ := strconv.Atoi(t.Name())
			b, err := os.ReadFile(childrenFile(pid, tid))
			if err != nil {
				continue
			}
			for _, f := range strings.Fields(string(b)) {
				if child, err := strconv.Atoi(f); err == nil && !found[child] {
					found[child] = true
					queue = append(queue, child)
				}
			}
		}
	}
	return found
}

func childrenFile(pid, tid int) string {
	return "/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid) + "/children"
}

// Looking for what a killed supervisor leaves.
const (
	lookAgain  = time.Millisecond
	quietLooks = 2           // in a row that must find nothing: what is forked during one is seen by the next
	execBound  = time.Second // how long a process may be without an environment, as within execve
)

// killMarked kills what carries the lease in the environment it was started
// with, and waits for its end. It is for a tree whose supervisor was killed:
// then nothing else tells where its processes belong. It repeats until it finds
// none, at most for bound.
func killMarked(lease string, bound time.Duration) error {
	mark := []byte("\x00FORGEYARD_LEASE=" + lease + "\x00")
	quiet := 0
	for began := time.Now(); time.Since(began) < bound; {
		found, unclear, err := killOnce(mark, bound)
		switch {
		case err != nil:
			return err
		case found:
			quiet = 0
			continue
		case unclear && time.Since(began) < execBound:
			quiet = 0
		default:
			quiet++
		}
		if quiet == quietLooks {
			return nil
		}
		time.Sleep(lookAgain)
	}
	return errors.New("processes of the attempt could not be killed")
}

// killOnce looks at every process once. unclear tells that one of them cannot be
// told apart yet.
func killOnce(mark []byte, bound time.Duration) (found, unclear bool, err error) {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return false, false, err
	}
	var killed []int // descriptors
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		switch has, starting := marked(pid, mark); {
		case starting:
			unclear = true
			continue
		case !has:
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if has, _ := marked(pid, mark); !has { // the id may be another process's by now
			unclear = true
			_ = unix.Close(fd)
			continue
		}
		found = true
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		killed = append(killed, fd)
	}
	// All have their signal before one is waited for. A process that is ending
	// loses its environment first, so a second look would not show that it is there.
	for _, fd := range killed {
		awaitEnd(fd, bound)
		_ = unix.Close(fd)
	}
	return found, unclear, nil
}

// awaitEnd waits until the process behind a descriptor has ended, at most for bound.
func awaitEnd(fd int, bound time.Duration) {
	for until := time.Now().Add(bound); ; {
		left := time.Until(until)
		if left <= 0 {
			return
		}
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// marked reports whether a process was started with the mark. starting tells
// that it has no environment at all, as a process has none in the middle of
// execve: it may turn out to be marked.
func marked(pid int, mark []byte) (has, starting bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	b, err := os.ReadFile(dir + "/environ")
	if err != nil {
		return false, false
	}
	if len(b) == 0 {
		_, err := os.Readlink(dir + "/exe") // the kernel's own threads have none, nor what has ended
		return false, err == nil
	}
	return strings.Contains("\x00"+string(b), string(mark)), false
}

// diskUse is what a file occupies, and whether other names may share it.
func diskUse(info os.FileInfo) (bytes int64, inode uint64, shared bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.Size(), 0, false
	}
	return st.Blocks * 512, st.Ino, st.Nlink > 1 && !info.IsDir()
}

// diskFree is how many bytes are free for this user where dir is.
func diskFree(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return int64(fs.Bavail) * fs.Bsize, nil
}
