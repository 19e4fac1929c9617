// Network namespaces of this process: made by it, kept open by it, gone with it.

package fleet

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// namespace is a network of its own. It has no name; whoever holds the file is in it or can enter it.
type namespace struct{ file *os.File }

// newNamespace makes an empty network whose loopback is up. It needs root.
func newNamespace() (*namespace, error) {
	var ns namespace
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		ns.file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	if err := ns.ip("link set lo up"); err != nil {
		return nil, errors.Join(err, ns.close())
	}
	return &ns, nil
}

// onThread runs do on a thread of its own, which ends with it: the runtime gives
// such a thread, which is in another network, to nobody else.
func onThread(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- do()
	}()
	return <-done
}

// enter moves the calling thread, which must be locked, into the network.
func (n *namespace) enter() error {
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter a network namespace: %w", err)
	}
	return nil
}

// do runs something inside; sockets that it opens stay there.
func (n *namespace) do(what func() error) error {
	return onThread(func() error {
		if err := n.enter(); err != nil {
			return err
		}
		return what()
	})
}

// dial connects from inside.
func (n *namespace) dial(network, addr string) (c net.Conn, err error) {
	err = n.do(func() (err error) {
		c, err = net.Dial(network, addr)
		return err
	})
	return c, err
}

// ip runs lines of ip(8) inside.
func (n *namespace) ip(lines ...string) error {
	return n.do(func() error {
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(lines, "; "), err, text)
		}
		return nil
	})
}

// path names the network for ip(8), which runs as a child of this process.
func (n *namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

func (n *namespace) close() error { return n.file.Close() }
