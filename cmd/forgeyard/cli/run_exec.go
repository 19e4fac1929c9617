// forgeyard run exec: one command on some agent, as if it ran here.

package cli

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/roles/runner"
)

func (a *app) execCommand() *cobra.Command {
	var f runFlags
	var artifacts []string
	c := &cobra.Command{
		Use: "exec -- COMMAND [ARG…]", Short: "Run one command on an agent and show its output live",
		Args: args(1, -1, "-- COMMAND [ARG…]"),
		Long: "Run one command on an agent, show its output as it comes, and exit as it did. No shell is involved.\n" +
			"Ctrl-C asks for the command's end and waits for it (exit 130); a second one leaves it alone.",
		Example: "  forgeyard run exec -- uname -a\n  forgeyard run exec --source . --label linux --artifact app=bin/app -- make",
		RunE: func(c *cobra.Command, argv []string) error {
			if c.ArgsLenAtDash() != 0 {
				return usagef("put -- before it: forgeyard run exec -- "+strings.Join(argv, " "), "the command is what follows --")
			}
			spec := f.command(argv)
			for _, kv := range artifacts {
				name, path, ok := strings.Cut(kv, "=")
				if !ok {
					return usagef("for example --artifact app=bin/app", "--artifact %q is not NAME=PATH", kv)
				}
				spec.Jobs[0].Outputs = append(spec.Jobs[0].Outputs, runner.Output{Name: name, Path: path})
			}
			if err := a.complete(&spec, f); err != nil {
				return err
			}
			return a.exec(c.Context(), spec, f)
		},
	}
	f.register(c.Flags())
	c.Flags().StringArrayVar(&artifacts, "artifact", nil, "NAME=PATH: keep this file or directory when the command succeeds; repeatable")
	return c
}

// errDetached ends an exec whose run goes on.
var errDetached = errors.New("detached")

// exec submits a run of one job and stays with it.
func (a *app) exec(ctx context.Context, spec runner.RunSpec, f runFlags) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c, err := a.client(ctx) // before presses are counted: reading its files may hang, and ends with ctx
	if err != nil {
		return err
	}
	presses, stop := a.presses(ctx)
	defer stop()
	work, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	defer leave(nil)
	d, early, err := a.submitUnlessPressed(work, c, presses, spec, f)
	if err != nil {
		return err
	}
	a.note("run %s", d.ID)
	asked := a.onPress(work, presses, early, d.ID, leave)
	tell := &progress{app: a, quiet: true}
	follow := &follower{app: a, client: c, run: d.ID, printer: a.newLogPrinter(d.ID, jobNames(spec)), note: a.note, watch: tell.tell}
	d, err = follow.toEnd(work, d)
	leave(nil)
	interrupted := asked()
	if errors.Is(context.Cause(work), errDetached) {
		a.note("left while it ends: forgeyard run show %s", d.ID)
		return verdict{ExitInterrupted}
	}
	if err != nil {
		a.note("the run may go on: forgeyard run show %s", d.ID)
		return err
	}
	if a.structured() {
		if err := a.document(d); err != nil {
			return err
		}
	}
	return a.execVerdict(d, interrupted)
}

// submitUnlessPressed gives up packing, uploading and submitting at the first Ctrl-C;
// pressed tells that one came when the run had been submitted all the same.
func (a *app) submitUnlessPressed(work context.Context, c *client.Client, presses <-chan os.Signal, spec runner.RunSpec, f runFlags) (d runner.RunDocument, pressed bool, err error) {
	submitting, giveUp := context.WithCancel(work)
	var wait sync.WaitGroup
	wait.Go(func() {
		select {
		case <-presses:
			pressed = true
			giveUp()
		case <-submitting.Done():
		}
	})
	d, err = a.submit(submitting, c, spec, f)
	giveUp()
	wait.Wait()
	if pressed && errors.Is(err, context.Canceled) { // else it ended by itself just then
		err = verdict{ExitInterrupted} // submit has said what there may be
	}
	return d, pressed, err
}

// execVerdict exits as the command did.
func (a *app) execVerdict(d runner.RunDocument, interrupted bool) error {
	if d.State == runner.RunSucceeded {
		return nil
	}
	reason, code := string(d.State), ExitFailed
	if len(d.Jobs) > 0 {
		j := d.Jobs[0]
		reason = string(j.State)
		if j.Reason != "" {
			reason += ": " + j.Reason
		}
		if n := len(j.Leases); n > 0 && j.Leases[n-1].Outcome == runner.Failed && j.Leases[n-1].ExitCode != nil {
			code = *j.Leases[n-1].ExitCode
		}
	}
	if interrupted && d.State == runner.RunCancelled {
		code = ExitInterrupted
	}
	if code <= 0 || code > 255 {
		code = ExitFailed
	}
	a.note("run %s %s", d.ID, reason)
	return verdict{code}
}

// presses delivers each Ctrl-C. The end of ctx counts as one where nobody counts them.
func (a *app) presses(ctx context.Context) (<-chan os.Signal, func()) {
	if a.io.Interrupts != nil {
		return a.io.Interrupts()
	}
	ch, done := make(chan os.Signal, 1), make(chan struct{})
	var once sync.WaitGroup
	once.Go(func() {
		select {
		case <-ctx.Done():
			ch <- os.Interrupt
		case <-done:
		}
	})
	return ch, func() { close(done); once.Wait() }
}

// onPress asks for the run's end at the first press, which may have come early, and leaves at the second.
// The function that it returns waits for it to end, once work has, and tells whether anybody pressed.
func (a *app) onPress(work context.Context, presses <-chan os.Signal, early bool, run string, leave context.CancelCauseFunc) func() bool {
	var pressed bool
	var wg sync.WaitGroup
	wg.Go(func() {
		if !early {
			select {
			case <-work.Done():
				return
			case <-presses:
			}
		}
		pressed = true
		a.note("asking for the end of run %s; Ctrl-C again leaves it alone", run)
		asking, cancel := context.WithCancel(work)
		defer cancel()
		var ask sync.WaitGroup
		ask.Go(func() {
			if _, err := a.cancelRun(asking, run, "", "interrupted"); err != nil && asking.Err() == nil {
				_, p := explain(err)
				a.note("its end could not be asked for: %s", p.Message)
			}
		})
		select {
		case <-work.Done():
		case <-presses:
			leave(errDetached)
		}
		cancel()
		ask.Wait()
	})
	return func() bool { wg.Wait(); return pressed }
}

// cancelRun asks for the end of a run, or of one of its jobs. Asking twice does no harm.
func (a *app) cancelRun(ctx context.Context, run, job, reason string) (d runner.RunDocument, err error) {
	err = a.call(ctx, func(ctx context.Context, c *client.Client) error {
		return c.Post(ctx, runPath(run)+"/cancel", ulid.Make().String(), runner.CancelRequest{Job: job, Reason: reason}, &d)
	})
	return d, err
}
