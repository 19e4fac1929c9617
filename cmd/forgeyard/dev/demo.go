// `forgeyard demo`: the main claim without a person. 200 jobs, the leader killed mid-way, a verdict by exit code.

package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// demoJobs is how many jobs the demo submits, in runs of demoBatch. demoBound is
// for their work alone, on a machine that has much else to do.
const (
	demoJobs  = 200
	demoBatch = 10
	demoBound = 5 * time.Minute
)

// DemoCommand returns `forgeyard demo`.
func DemoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Kill the leader amid 200 jobs; none may be lost or done twice",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			return demo(ctx, cmd.OutOrStdout())
		},
	}
}

func demo(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "forgeyard-demo-")
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "forgeyard demo: %d jobs on three daemons; the leader is killed mid-way\n", demoJobs)
	f, err := fleet.Start(ctx, fleet.Options{Dir: dir, Binary: exe, Trace: true, Progress: progressPrinter(out)})
	if err != nil {
		return errors.Join(err, fmt.Errorf("the logs are kept in %s", dir))
	}
	passed := false
	defer func() {
		err = errors.Join(err, stopFleet(f))
		if passed {
			err = errors.Join(err, os.RemoveAll(dir))
		} else {
			fmt.Fprintf(out, "the logs are kept in %s\n", dir)
		}
	}()
	work, cancel := context.WithTimeout(ctx, demoBound)
	defer cancel()
	verdict, err := killLeaderMidway(work, out, f)
	switch {
	case err != nil && work.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("the work was not done within %s: this machine may have too much else to do: %w", demoBound, err)
	case err != nil:
		return err
	}
	problems := verdict.Problems()
	for _, p := range problems {
		fmt.Fprintln(out, "  ! "+p)
	}
	if len(problems) > 0 {
		return fmt.Errorf("demo failed: %d problems", len(problems))
	}
	passed = true
	fmt.Fprintln(out, "demo passed")
	return nil
}

// killLeaderMidway submits the jobs, kills the leader once half of them are
// done, waits for the rest and reports.
func killLeaderMidway(ctx context.Context, out io.Writer, f *fleet.Fleet) (fleet.Verdict, error) {
	for i := range demoJobs / demoBatch {
		if _, err := f.Submit(ctx, i, fleet.ShellRun(fmt.Sprintf("demo-%02d", i+1), demoBatch, "sleep 0.1; echo done")); err != nil {
			return fleet.Verdict{}, err
		}
	}
	fmt.Fprintf(out, "submitted    %d jobs\n", demoJobs)
	if err := f.WaitFinished(ctx, demoJobs/2); err != nil {
		return fleet.Verdict{}, err
	}
	failover, err := f.KillLeader(ctx)
	if err != nil {
		return fleet.Verdict{}, err
	}
	fmt.Fprintf(out, "killed       the leader %s (pid %d) with kill -9 after %d of %d jobs\n", failover.Node, failover.PID, failover.FinishedBefore, demoJobs)
	fmt.Fprintf(out, "failover     %.2fs from the kill to the first lease of the new epoch\n", failover.Took.Seconds())
	fmt.Fprintf(out, "epochs       SchedulerLeader %d -> %d\n", failover.EpochBefore, failover.EpochAfter)
	if err := f.WaitTerminal(ctx); err != nil {
		return fleet.Verdict{}, err
	}
	v, err := f.Check(ctx)
	if err != nil {
		return v, err
	}
	fmt.Fprintf(out, "jobs         %d submitted, %d terminal, %d succeeded, most attempts %d\n", v.Submitted, v.Terminal, v.Succeeded, v.MaxAttempt)
	fmt.Fprintf(out, "starts       %d in the agents' own logs\n", v.Starts)
	fmt.Fprintf(out, "duplicates   %d\n", v.Duplicates)
	fmt.Fprintf(out, "overlaps     %d\n", v.Overlaps)
	return v, nil
}
