// Package watchdog ends a process that was told to end and does not, whatever in it heeds no deadline.
package watchdog

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
)

// ExitStuck is the exit status of a process that its own work keeps from ending.
const ExitStuck = 70

// ErrStuck (FY-STOP-001): some part of the process did not end.
var ErrStuck = &cluster.Error{
	Kind: cluster.Internal, Code: "FY-STOP-001", Message: "a part of this process does not stop, so the process ends without it",
	Hint: "look for what hangs: the file system of the artifact store, or the one under the process's own directory",
}

// sayBound is how long the last words of a process may take: nobody may read its output.
const sayBound = 2 * time.Second

// Watchdog counts from when its process was told to end.
type Watchdog struct {
	part   atomic.Pointer[string]
	disarm func()
}

// Arm lets the process live for bound once told has ended; then exit ends it, with
// ExitStuck and a reason that names the part entered last. Disarm it when everything
// has ended.
func Arm(told context.Context, bound time.Duration, exit func(code int, reason string)) *Watchdog {
	w := &Watchdog{}
	armed, cancel := context.WithCancel(context.WithoutCancel(told))
	forget := context.AfterFunc(told, func() {
		select {
		case <-armed.Done():
		case <-time.After(bound):
			exit(ExitStuck, w.reason())
		}
	})
	w.disarm = func() { forget(); cancel() }
	return w
}

// Enter names the part of the process that starts or ends next.
func (w *Watchdog) Enter(part string) { w.part.Store(&part) }

// Disarm calls the watchdog off. Repeating it does no harm.
func (w *Watchdog) Disarm() { w.disarm() }

func (w *Watchdog) reason() string {
	if part := w.part.Load(); part != nil {
		return ErrStuck.Wrap(errors.New(*part), "").Error()
	}
	return ErrStuck.Error()
}

// Exit returns what ends the process at once, after say or two seconds at most. It is for
// a process that cannot end its own work safely: another one takes over.
func Exit(say func(code int, reason string)) func(code int, reason string) {
	return func(code int, reason string) {
		said := make(chan struct{})
		go func() {
			defer close(said)
			say(code, reason)
		}()
		select {
		case <-said:
		case <-time.After(sayBound):
		}
		os.Exit(code)
	}
}
