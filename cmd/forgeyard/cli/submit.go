// forgeyard run submit: from a file or from a command line.

package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forgeyard/forgeyard/cluster/config/ron"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// runFlags describe a run, and the job of one that is given on the command line.
type runFlags struct {
	queue, source string
	env           []string
	key           string

	name     string
	labels   []string
	limit    time.Duration
	attempts int
	priority int
}

func (f *runFlags) register(fl *pflag.FlagSet) {
	fl.StringVar(&f.queue, "queue", "", "queue of the run; queues share the agents fairly (default \""+runner.DefaultQueue+"\")")
	fl.StringVar(&f.source, "source", "", "pack this `directory`, without .git, upload it, and start each job in a copy of it")
	fl.StringArrayVar(&f.env, "env", nil, "NAME=VALUE for the command, or for the jobs of a file that do not set it; NAME alone takes the value from here; repeatable")
	fl.StringVar(&f.key, "idempotency-key", "", "submitting again under the same key, as the same caller, returns the first run")
	fl.StringVar(&f.name, "name", "", "name of the run (default: the command's)")
	fl.StringArrayVar(&f.labels, "label", nil, "label that the agent must carry; repeatable")
	fl.DurationVar(&f.limit, "job-timeout", 0, "time limit of the command (default 1h)")
	fl.IntVar(&f.attempts, "attempts", 0, "most attempts (default 3)")
	fl.IntVar(&f.priority, "priority", 0, "-100 to 100, higher first")
}

// sampleRun is what help shows of a run's file; a test reads it as one.
const sampleRun = `  (name: "app", jobs: [
      (name: "build", argv: ["go", "build", "-o", "app", "."],
       outputs: [(name: "binary", path: "app")]),
      (name: "test", needs: ["build"], timeout: "5m", labels: ["linux"],
       steps: [(name: "try", argv: ["./app", "--version"])]),
  ])`

func (a *app) submitCommand() *cobra.Command {
	var f runFlags
	var wait, follow bool
	c := &cobra.Command{
		Use: "submit FILE | submit -- COMMAND [ARG…]", Short: "Submit a run from a file, or one command",
		Args: args(1, -1, "FILE, or -- COMMAND [ARG…]"),
		Long: "Submit a run. FILE is RON or JSON, - is standard input; what follows -- is the command of a run with one job.\n" +
			"No shell is involved. With --wait or --follow the run is followed to its end: exit 0 when it succeeded, 1 when\n" +
			"not; --follow also shows the logs as they come. Ctrl-C then leaves the run running.",
		Example: "  forgeyard run submit -- go version\n  forgeyard run submit build.ron --source . --follow\n  forgeyard run submit --label linux --env CI=1 --wait -- go build ./...\n\n" +
			"A file, with an output that a later job finds in its working directory:\n" + sampleRun,
		RunE: func(c *cobra.Command, given []string) error {
			if wait && follow {
				return usagef("--follow waits too, and shows the logs", "--wait and --follow exclude each other")
			}
			spec, err := a.spec(c, f, given)
			if err != nil {
				return err
			}
			fleet, err := a.client(c.Context())
			if err != nil {
				return err
			}
			d, err := a.submit(c.Context(), fleet, spec, f)
			if err != nil {
				return err
			}
			switch {
			case follow:
				a.note("run %s", d.ID)
				return a.followLogs(c.Context(), d, jobNames(spec))
			case wait:
				return a.wait(c.Context(), d)
			}
			return a.print(result{doc: d, names: []string{"run/" + d.ID}, draw: func(p *painter) {
				p.line("submitted run %s (%d %s)", d.ID, len(spec.Jobs), plural(len(spec.Jobs), "job"))
				p.line("next: forgeyard run show %s", d.ID)
			}})
		},
	}
	f.register(c.Flags())
	c.Flags().BoolVar(&wait, "wait", false, "follow the run to its end")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "follow the run and its logs to its end")
	return c
}

// submit uploads the source, if one is given, and submits the run.
func (a *app) submit(ctx context.Context, c *client.Client, spec runner.RunSpec, f runFlags) (d runner.RunDocument, err error) {
	if f.source != "" {
		if spec.Source, err = a.uploadSource(ctx, c, f.source); err != nil {
			if ctx.Err() != nil {
				a.note("interrupted: nothing was submitted")
			}
			return d, err
		}
	}
	key := f.key
	if key == "" {
		key = ulid.Make().String() // a retry at another daemon must not run the work twice
	}
	bounded, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	err = c.Post(bounded, "/v1/runs", key, spec, &d)
	again := "repeat the command with --idempotency-key " + key + ": it returns the run if it was stored, and else submits it"
	if ctx.Err() != nil && err != nil {
		a.note("interrupted: the run may have been submitted; %s", again)
	}
	if failed := (*client.Error)(nil); errors.As(err, &failed) && failed.Problem.OutcomeUnknown {
		failed.Problem.Hint = again
	}
	return d, err
}

// spec reads what is to be submitted: a file, or the command after --.
func (a *app) spec(c *cobra.Command, f runFlags, given []string) (spec runner.RunSpec, err error) {
	switch dash := c.ArgsLenAtDash(); {
	case dash == 0:
		spec = f.command(given)
	case dash > 0:
		return spec, usagef("see: forgeyard run submit --help", "give a file or a command after --, not both")
	default:
		for _, name := range []string{"name", "label", "job-timeout", "attempts", "priority"} {
			if c.Flags().Changed(name) {
				return spec, usagef("write it into the file", "--%s describes a command after --, not a file", name)
			}
		}
		if len(given) != 1 {
			return spec, usagef("put -- before a command: forgeyard run submit -- COMMAND", "one FILE is expected, %d given", len(given))
		}
		spec, err = untilInterrupted(c.Context(), func() (runner.RunSpec, error) { return a.readSpec(given[0]) })
	}
	if err != nil {
		return spec, err
	}
	return spec, a.complete(&spec, f)
}

// complete adds what flags say of any run, and checks the whole.
func (a *app) complete(spec *runner.RunSpec, f runFlags) error {
	if f.queue != "" {
		spec.Queue = f.queue
	}
	if f.source != "" && spec.Source != "" {
		return usagef("leave one out", "the run names a source already, and --source another")
	}
	for _, kv := range f.env {
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			if value, ok = a.io.lookupEnv(name); !ok {
				return usagef("write --env NAME=VALUE", "--env %s: it has no value here", name)
			}
		}
		for i := range spec.Jobs {
			j := &spec.Jobs[i]
			if j.Env == nil {
				j.Env = map[string]string{}
			}
			if _, set := j.Env[name]; !set {
				j.Env[name] = value
			}
		}
	}
	if err := spec.Validate(); err != nil {
		return usagef("what a run may have: forgeyard run submit --help", "%s", err.Error())
	}
	return nil
}

// command makes a run of one job.
func (f runFlags) command(argv []string) runner.RunSpec {
	job := runner.JobSpec{
		Name: filepath.Base(argv[0]), Argv: argv, Labels: f.labels, Priority: f.priority,
		Timeout: runner.Duration(f.limit), AttemptLimit: f.attempts,
	}
	name := f.name
	if name == "" {
		name = job.Name
	}
	return runner.RunSpec{Name: name, Jobs: []runner.JobSpec{job}}
}

func jobNames(spec runner.RunSpec) []string {
	var out []string
	for _, j := range spec.Jobs {
		out = append(out, j.Name)
	}
	return out
}

// fileHint is for a FILE that is none: perhaps a command was meant.
const fileHint = "give the path of a file, or put -- before a command: forgeyard run submit -- COMMAND"

func (a *app) readSpec(path string) (spec runner.RunSpec, err error) {
	in := a.io.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return spec, usagef(fileHint, "the run's file cannot be read: %s", err.Error())
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		in = f
	}
	src, err := io.ReadAll(io.LimitReader(in, ron.MaxSize+1))
	if err != nil {
		return spec, usagef(fileHint, "the run's file cannot be read: %s", err.Error())
	}
	v, err := ron.Parse(path, src)
	if err == nil {
		_, err = ron.Decode(v, &spec)
	}
	if err != nil {
		return spec, usagef("what a file holds: forgeyard run submit --help", "%s", err.Error())
	}
	return spec, nil
}
