// What `forgeyard dev` prints: progress while the fleet starts, then where things are and what to try.

package dev

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// progressPrinter prints one line per step.
func progressPrinter(out io.Writer) func(fleet.Step) {
	return func(s fleet.Step) {
		fmt.Fprintf(out, "  + %-10s %-8s %5.1fs   %s\n", s.Subject, s.State, s.Took.Seconds(), s.Detail)
	}
}

// suggestion is one command that the banner offers.
type suggestion struct{ command, why string }

func (s suggestion) line() string { return fmt.Sprintf("  %-34s %s", s.command, s.why) }

// tryNext lists the commands of the banner, in an order in which they work one
// after the other: LEADER and FOLLOWER stand for the daemons of the moment.
var tryNext = []suggestion{
	{"forgeyard cluster status --watch", "see it live (Ctrl-C ends it)"},
	{"forgeyard cluster roles", "who owns what, under which epoch"},
	{"forgeyard run exec -- echo hello", "run a job and see its log live"},
	{"forgeyard queues", "what waits, and for how long"},
	{"forgeyard dev kill LEADER", "end the leader and watch a failover"},
	{"forgeyard dev resume LEADER", "start it again, as a new incarnation"},
	{"forgeyard dev partition FOLLOWER", "cut a daemon off"},
	{"forgeyard dev heal FOLLOWER", "mend it"},
	{"forgeyard actors", "the live actor tree"},
}

// suggestions fills the daemons' names in.
func suggestions(leader, follower string) []suggestion {
	names := strings.NewReplacer("LEADER", leader, "FOLLOWER", follower)
	var out []suggestion
	for _, s := range tryNext {
		out = append(out, suggestion{names.Replace(s.command), s.why})
	}
	return out
}

// logsLine tells where the daemons log.
func logsLine(dir string) string { return "Logs        " + dir + "/node-*/daemon.log" }

// printPlaces tells where things are, once the fleet is ready.
func printPlaces(out io.Writer, f *fleet.Fleet, exe string) {
	fmt.Fprintf(out, "API         %s\n", f.Nodes()[0].Endpoint())
	fmt.Fprintln(out, logsLine(f.Dir()))
	fmt.Fprintf(out, "2nd shell   eval \"$(%s dev env)\"\n", exe)
}

// printBanner tells what to try, with the leader and a follower of the moment.
func printBanner(ctx context.Context, out io.Writer, f *fleet.Fleet) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // a fleet without a leader has a banner all the same
	defer cancel()
	nodes := f.Nodes()
	leader, follower := nodes[0].Name, nodes[len(nodes)-1].Name
	if n, err := f.Leader(ctx); err == nil && n.Name != leader {
		leader, follower = n.Name, leader
	}
	fmt.Fprintln(out, "Try next:")
	for _, s := range suggestions(leader, follower) {
		fmt.Fprintln(out, s.line())
	}
	fmt.Fprintln(out, "Stop with Ctrl-C.")
}
