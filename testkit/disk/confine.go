// The side of the supervised process: it hands its file operations over before it does anything else.

package disk

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// envSupervised is set in a process that must call Confine.
const envSupervised = "FORGEYARD_DISK_SUPERVISED"

// socketFD is the supervised process' end of the socket on which it sends the listener.
const socketFD = 3

// watched are the system calls through which Go changes files. Opening is
// watched for the files that it creates.
var watched = []uint32{
	unix.SYS_PWRITE64, unix.SYS_WRITE, unix.SYS_FTRUNCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC,
	unix.SYS_OPENAT, unix.SYS_RENAMEAT, unix.SYS_UNLINKAT, unix.SYS_MKDIRAT,
}

// Supervised reports whether this process was started by Start.
func Supervised() bool { return os.Getenv(envSupervised) != "" }

// Confine stops this process' file operations at the kernel from now on, and
// returns once its supervisor has taken over. Programs that it executes stay confined.
func Confine() error {
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // the number of the call
	for i, nr := range watched {
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(len(watched) - i), K: nr})
	}
	program = append(program,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	// A call that is being carried out must not be begun again because of a signal: Go sends itself many.
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return fmt.Errorf("seccomp filter: %w", errno)
	}
	// sendmsg and recvmsg are not watched: the supervisor does not listen yet.
	if err := uninterrupted(func() error { return unix.Sendmsg(socketFD, []byte{0}, unix.UnixRights(int(listener)), nil, 0) }); err != nil {
		return fmt.Errorf("hand over the listener: %w", err)
	}
	err := uninterrupted(func() error {
		_, _, _, _, err := unix.Recvmsg(socketFD, make([]byte, 1), nil, 0)
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for the supervisor: %w", err)
	}
	return errors.Join(unix.Close(int(listener)), unix.Close(socketFD))
}

// Become confines this process and has it become another program, which knows nothing of
// it. args[0] is the program's file. It returns only when that fails.
func Become(args []string) error {
	if err := Confine(); err != nil {
		return err
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, envSupervised+"=") })
	return fmt.Errorf("become %s: %w", args[0], unix.Exec(args[0], args, env))
}
