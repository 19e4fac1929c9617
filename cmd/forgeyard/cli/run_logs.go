// forgeyard run logs: what the jobs of a run wrote, to its end or as it comes.

package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/roles/runner"
)

func (a *app) logsCommand() *cobra.Command {
	var follow bool
	var attempt int
	c := &cobra.Command{
		Use: "logs RUN [JOB]", Short: "Show what the jobs of a run write", Args: args(1, 2, "RUN [JOB]"),
		Long: "Show the output of a run's jobs, or of one: of the newest attempt of each. With several jobs each line begins with\n" +
			"the name of its job. -f follows until the jobs have ended, from daemon to daemon: no line is lost and none comes\n" +
			"twice. In a pipe the log of one job comes byte for byte; on a terminal its colours stay and nothing else can steer it.",
		Example:           "  forgeyard run logs 01JDVW build\n  forgeyard run logs -f 01JDVW\n  forgeyard run logs 01JDVW test --attempt 1 -o json",
		ValidArgsFunction: a.completeRunJob,
		RunE: func(c *cobra.Command, given []string) error {
			if attempt < 0 || attempt > runner.MaxAttemptLimit || c.Flags().Changed("attempt") && attempt == 0 {
				return usagef("for example --attempt 1", "--attempt must be between 1 and %d", runner.MaxAttemptLimit)
			}
			ctx := c.Context()
			id, err := a.runID(ctx, given[0])
			if err != nil {
				return err
			}
			d, err := a.run(ctx, id)
			if err != nil {
				return err
			}
			jobs := d.Jobs
			if len(given) == 2 {
				j, err := jobOf(d, given[1])
				if err != nil {
					return err
				}
				jobs = []runner.Job{j}
			}
			if a.format == formatName {
				return a.print(result{names: logNames(id, jobs)})
			}
			if follow && attempt == 0 {
				return a.tailLogs(ctx, d, jobs)
			}
			return a.showLogs(ctx, id, jobs, attempt, follow)
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the jobs have ended")
	c.Flags().IntVar(&attempt, "attempt", 0, "of this attempt (default: the newest)")
	return c
}

func logNames(run string, jobs []runner.Job) []string {
	var names []string
	for _, j := range jobs {
		if j.Attempt > 0 {
			names = append(names, "log/"+run+"/"+j.Name)
		}
	}
	return names
}

func namesOf(jobs []runner.Job) []string {
	var names []string
	for _, j := range jobs {
		names = append(names, j.Name)
	}
	return names
}

// showLogs prints the logs one after the other. Follow waits for the end of each.
func (a *app) showLogs(ctx context.Context, run string, jobs []runner.Job, attempt int, follow bool) error {
	c, err := a.client(ctx)
	if err != nil {
		return err
	}
	p := a.newLogPrinter(run, namesOf(jobs))
	for _, j := range jobs {
		which := j.Attempt
		if attempt > 0 {
			which = attempt
		}
		if which == 0 || which > j.Attempt {
			if len(jobs) == 1 {
				a.note("job %s has no such log yet, it is %s; see: forgeyard run why %s %s", j.Name, string(j.State), run, j.Name)
			}
			continue
		}
		out := p.log(j.Name, which)
		l := &attemptLog{run: run, job: j.Name, attempt: which, follow: follow, to: out}
		if err := errors.Join(a.copyLog(ctx, c, l), out.Close()); err != nil {
			return err
		}
	}
	return nil
}

// tailLogs shows the newest attempts and all that follow, until the jobs have ended.
func (a *app) tailLogs(ctx context.Context, d runner.RunDocument, jobs []runner.Job) error {
	c, err := a.client(ctx)
	if err != nil {
		return err
	}
	tell := &progress{app: a, quiet: true}
	f := &follower{
		app: a, client: c, run: d.ID, newest: true, strict: true, printer: a.newLogPrinter(d.ID, namesOf(jobs)), note: a.note, watch: tell.tell,
	}
	if len(jobs) == 1 {
		f.job = jobs[0].Name
	}
	if d, err = f.toEnd(ctx, d); err != nil || a.structured() {
		return err
	}
	if d.State == runner.RunRunning { // the one job has ended, others have not
		j, err := jobOf(d, f.job)
		if err == nil {
			a.note("job %s of run %s %s; the run goes on", j.Name, d.ID, j.State)
		}
		return err
	}
	a.note("%s", ended(d))
	return nil
}
