// What an idle daemon costs.

package fleetbench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// idleFor is how long CPU time is counted.
const idleFor = 30 * time.Second

// BenchmarkIdleDaemon reports resident memory and CPU of the leader and of a
// follower in a fleet without work.
func BenchmarkIdleDaemon(b *testing.B) {
	f := startFleet(b)
	ctx, cancel := context.WithTimeout(context.Background(), 2*idleFor)
	defer cancel()
	leader, err := f.Leader(ctx)
	require.NoError(b, err)
	for range b.N {
		before := map[*fleet.Node]time.Duration{}
		for _, n := range f.Nodes() {
			before[n] = cpuTime(b, n.PID())
		}
		select {
		case <-time.After(idleFor):
		case <-ctx.Done():
		}
		var follower *fleet.Node
		for _, n := range f.Nodes() {
			used := 100 * (cpuTime(b, n.PID()) - before[n]).Seconds() / idleFor.Seconds()
			b.Logf("%s (leader: %v): %.1f MiB resident, %.2f %% of a core", n.Name, n == leader, resident(b, n.PID()), used)
			if n == leader {
				b.ReportMetric(used, "leader-cpu-%")
				b.ReportMetric(resident(b, n.PID()), "leader-MiB")
			} else if follower == nil {
				follower = n
				b.ReportMetric(used, "follower-cpu-%")
				b.ReportMetric(resident(b, n.PID()), "follower-MiB")
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}

// clockTick is USER_HZ, which Linux fixes at 100 for /proc.
const clockTick = 10 * time.Millisecond

func cpuTime(b *testing.B, pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(b, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	user, err := strconv.Atoi(fields[11])
	require.NoError(b, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(b, err)
	return time.Duration(user+system) * clockTick
}

func resident(b *testing.B, pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(b, err)
	for line := range strings.SplitSeq(string(text), "\n") {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(kb)[0])
			require.NoError(b, err)
			return float64(n) / 1024
		}
	}
	b.Fatal("no VmRSS")
	return 0
}
