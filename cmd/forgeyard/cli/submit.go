// forgeyard run submit: from a file or from a command line, and following it to its end.

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/cluster/config/ron"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/roles/runner"
)

const (
	pollInterval = 300 * time.Millisecond
	// pollPatience is how long --wait goes on when no daemon answers: longer than a failover.
	pollPatience = time.Minute
)

// jobFlags describe a run of one job given on the command line.
type jobFlags struct {
	name     string
	env      []string
	labels   []string
	limit    time.Duration
	attempts int
	priority int
}

func (a *app) submitCommand() *cobra.Command {
	var f jobFlags
	var wait bool
	var key string
	c := &cobra.Command{
		Use: "submit FILE | submit -- COMMAND [ARG…]", Short: "Submit a run from a file, or one command",
		Args: args(1, -1, "FILE, or -- COMMAND [ARG…]"),
		Long: "Submit a run. FILE is RON or JSON, - is standard input; what follows -- is the command of a run with one job.\n" +
			"No shell is involved. With --wait the run is followed to its end: exit 0 when it succeeded, 1 when it failed.",
		Example: "  forgeyard run submit -- go version\n  forgeyard run submit build.ron --wait\n  forgeyard run submit --label linux --env CGO_ENABLED=0 --wait -- go build ./...",
		RunE: func(c *cobra.Command, given []string) error {
			spec, err := a.spec(c, f, given)
			if err != nil {
				return err
			}
			if key == "" {
				key = ulid.Make().String() // a retry at another daemon must not run the work twice
			}
			var d runner.RunDocument
			err = a.call(c.Context(), func(ctx context.Context, c *client.Client) error { return c.Post(ctx, "/v1/runs", key, spec, &d) })
			if err != nil {
				return err
			}
			if wait {
				return a.follow(c.Context(), d)
			}
			return a.print(result{doc: d, names: []string{"run/" + d.ID}, draw: func(p *painter) {
				p.line("submitted run %s (%d %s)", d.ID, len(spec.Jobs), plural(len(spec.Jobs), "job"))
				p.line("next: forgeyard run show %s", d.ID)
			}})
		},
	}
	fl := c.Flags()
	fl.BoolVar(&wait, "wait", false, "follow the run to its end")
	fl.StringVar(&key, "idempotency-key", "", "submitting again under the same key returns the first run")
	fl.StringVar(&f.name, "name", "", "name of the run (default: the command's)")
	fl.StringArrayVar(&f.env, "env", nil, "NAME=VALUE for the command; repeatable")
	fl.StringArrayVar(&f.labels, "label", nil, "label that the agent must carry; repeatable")
	fl.DurationVar(&f.limit, "job-timeout", 0, "time limit of the command (default 1h)")
	fl.IntVar(&f.attempts, "attempts", 0, "most attempts (default 3)")
	fl.IntVar(&f.priority, "priority", 0, "-100 to 100, higher first")
	return c
}

// spec reads the run from a file, or builds it from the command after --.
func (a *app) spec(c *cobra.Command, f jobFlags, given []string) (runner.RunSpec, error) {
	var spec runner.RunSpec
	var err error
	if c.ArgsLenAtDash() == 0 {
		spec, err = f.spec(given)
	} else {
		for _, name := range []string{"name", "env", "label", "job-timeout", "attempts", "priority"} {
			if c.Flags().Changed(name) {
				return spec, usagef("write it into the file", "--%s describes a command after --, not a file", name)
			}
		}
		if len(given) != 1 {
			return spec, usagef("put -- before a command: forgeyard run submit -- COMMAND", "one FILE is expected, %d given", len(given))
		}
		spec, err = a.readSpec(given[0])
	}
	if err != nil {
		return spec, err
	}
	if err := spec.Validate(); err != nil {
		return spec, usagef("", "%s", err.Error())
	}
	return spec, nil
}

func (f jobFlags) spec(argv []string) (runner.RunSpec, error) {
	job := runner.JobSpec{
		Name: filepath.Base(argv[0]), Argv: argv, Labels: f.labels, Priority: f.priority,
		Timeout: runner.Duration(f.limit), AttemptLimit: f.attempts,
	}
	for _, kv := range f.env {
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			return runner.RunSpec{}, usagef("write --env NAME=VALUE", "--env %q has no value", kv)
		}
		if job.Env == nil {
			job.Env = map[string]string{}
		}
		job.Env[name] = value
	}
	name := f.name
	if name == "" {
		name = job.Name
	}
	return runner.RunSpec{Name: name, Jobs: []runner.JobSpec{job}}, nil
}

func (a *app) readSpec(path string) (spec runner.RunSpec, err error) {
	in := a.io.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return spec, usagef("", "%s", err.Error())
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		in = f
	}
	src, err := io.ReadAll(io.LimitReader(in, ron.MaxSize+1))
	if err != nil {
		return spec, fmt.Errorf("read the run: %w", err)
	}
	v, err := ron.Parse(path, src)
	if err == nil {
		_, err = ron.Decode(v, &spec)
	}
	if err != nil {
		return spec, usagef("", "%s", err.Error())
	}
	return spec, nil
}

// follow reports progress on standard error and ends with the run. Ctrl-C
// leaves the run running. An unreachable fleet is waited out for a while: a
// failover is not a failure.
func (a *app) follow(ctx context.Context, d runner.RunDocument) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var said string
	answered := time.Now()
	for d.State == runner.RunRunning || d.State == "" {
		c := d.Counts
		now := fmt.Sprintf("run %s: %d queued, %d running, %d done", d.ID, c.Blocked+c.Queued+c.Backoff, c.Leased, c.Total()-c.Open())
		if now != said {
			said = now
			if _, err := fmt.Fprintln(a.io.Err, now); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			_, err := fmt.Fprintf(a.io.Err, "still running: forgeyard run show %s\n", d.ID)
			return errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
		next, err := a.run(ctx, d.ID)
		switch {
		case err == nil:
			d, answered = next, time.Now()
		case ctx.Err() != nil: // reported at the top of the loop
		case !worthWaiting(err) || time.Since(answered) > pollPatience:
			return err
		}
	}
	if err := a.print(runResult(d)); err != nil {
		return err
	}
	if d.State != runner.RunSucceeded {
		return &runFailed{message: fmt.Sprintf("run %s failed: %d of %d jobs did not succeed", d.ID, d.Counts.Total()-d.Counts.Succeeded, len(d.Jobs))}
	}
	return nil
}

// worthWaiting tells an outage, which ends, from an answer, which does not change.
func worthWaiting(err error) bool {
	var failed *client.Error
	return errors.As(err, &failed) && (failed.Status == 0 || failed.Status >= 500)
}
