// The time scale of a trace: monotonic, shared by all processes of the machine, virtual in a synctest bubble.

package trace

import (
	"time"

	"golang.org/x/sys/unix"
)

// anchor ties this process's monotonic clock to the machine's. It never changes.
var anchor = newAnchor()

type clockAnchor struct {
	at   time.Time
	mono int64 // CLOCK_MONOTONIC at that instant
}

func newAnchor() clockAnchor {
	var ts unix.Timespec
	at := time.Now()
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return clockAnchor{at: at} // order inside this process still holds
	}
	return clockAnchor{at: at, mono: ts.Nano()}
}

// Mono is the instant t on the trace's time scale, in nanoseconds. Differences
// are exact inside a synctest bubble too, where t is virtual.
func Mono(t time.Time) int64 { return anchor.mono + int64(t.Sub(anchor.at)) }
