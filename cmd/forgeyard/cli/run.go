// forgeyard run: the group, finding a run by what people type, and run list.

package cli

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/roles/runner"
)

func (a *app) runCommand() *cobra.Command {
	c := group(&cobra.Command{
		Use: "run", Short: "Submit runs and see how they go",
		Long: "Submit runs and see how they go. RUN is the id of a run, a unique beginning of it, or the name of a run that\nno other recent one has.",
	})
	c.AddCommand(a.submitCommand(), a.execCommand(), a.runListCommand(), a.runShowCommand(), a.logsCommand(),
		a.runCancelCommand(), a.artifactsCommand(), a.whyCommand())
	return c
}

// runIDLength is the length of a run's id, a ULID.
const runIDLength = 26

func runPath(id string) string { return "/v1/runs/" + url.PathEscape(id) }
func whyPath(id string) string { return runPath(id) + "/why" }

// runID finds a run by its id, a unique beginning of it, or its name among the newest runs.
func (a *app) runID(ctx context.Context, given string) (string, error) {
	given = strings.TrimPrefix(given, "run/")
	if len(given) == runIDLength {
		return strings.ToUpper(given), nil
	}
	l, err := a.runs(ctx, url.Values{"limit": {strconv.Itoa(runner.MaxList)}})
	if err != nil {
		return "", err
	}
	var found []string
	for _, r := range l.Runs {
		if r.Name == given || given != "" && strings.HasPrefix(r.ID, strings.ToUpper(given)) {
			found = append(found, r.ID)
		}
	}
	switch len(found) {
	case 0:
		return "", usagef("list them with: forgeyard run list", "none of the newest %d runs has the id or name %q", runner.MaxList, given)
	case 1:
		return found[0], nil
	}
	return "", usagef("give more of the id", "%q may be any of %s%s", given, strings.Join(found[:min(len(found), 5)], ", "), more(len(found)-5))
}

// run reads a run by its whole id.
func (a *app) run(ctx context.Context, id string) (d runner.RunDocument, err error) {
	err = a.get(ctx, runPath(id), &d)
	return d, err
}

// jobOf finds a job of a run by its name or id.
func jobOf(d runner.RunDocument, given string) (runner.Job, error) {
	given = strings.TrimPrefix(given, "job/")
	var all []string
	for _, j := range d.Jobs {
		if j.Name == given || j.ID == given {
			return j, nil
		}
		all = append(all, j.Name)
	}
	return runner.Job{}, usagef("its jobs: "+strings.Join(all[:min(len(all), 20)], ", ")+more(len(all)-20), "run %s has no job %q", d.ID, given)
}

func (a *app) runs(ctx context.Context, q url.Values) (l runner.RunListDocument, err error) {
	err = a.call(ctx, func(ctx context.Context, c *client.Client) error { return c.Get(ctx, "/v1/runs", q, &l) })
	return l, err
}

func runStates() []string {
	return []string{string(runner.RunRunning), string(runner.RunSucceeded), string(runner.RunFailed), string(runner.RunCancelled)}
}

func (a *app) runListCommand() *cobra.Command {
	var limit int
	var after, state, queue string
	c := &cobra.Command{
		Use: "list", Short: "List runs, newest first", Args: noArguments,
		Example: "  forgeyard run list --state failed\n  forgeyard run list --queue nightly --limit 100 -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 1 || limit > runner.MaxList {
				return usagef("for example --limit 50", "--limit must be between 1 and %d", runner.MaxList)
			}
			if state != "" && !slices.Contains(runStates(), state) {
				return usagef("choose one of "+strings.Join(runStates(), ", "), "unknown state %q", state)
			}
			q := url.Values{"limit": {strconv.Itoa(limit)}}
			for name, value := range map[string]string{"after": strings.TrimPrefix(after, "run/"), "state": state, "queue": queue} {
				if value != "" {
					q.Set(name, value)
				}
			}
			l, err := a.runs(c.Context(), q)
			if err != nil {
				return err
			}
			var names []string
			for _, r := range l.Runs {
				names = append(names, "run/"+r.ID)
			}
			return a.print(result{doc: l, names: names, draw: func(p *painter) {
				p.runs(l.Runs)
				if l.Next != "" {
					p.line("more: %s --after %s", commandLine(c), l.Next)
				}
			}})
		},
	}
	f := c.Flags()
	f.IntVar(&limit, "limit", runner.DefaultList, "how many")
	f.StringVar(&after, "after", "", "go on after this run, as the page before said")
	f.StringVar(&state, "state", "", "only runs in this state: "+strings.Join(runStates(), "|"))
	f.StringVar(&queue, "queue", "", "only runs of this queue")
	completeFlag(c, "state", runStates())
	return c
}

// commandLine is a command with the flags of its own that were given, for the next page.
func commandLine(c *cobra.Command) string {
	line := c.CommandPath()
	for _, name := range []string{"limit", "state", "queue"} {
		if f := c.Flags().Lookup(name); f != nil && f.Changed {
			line += " --" + name + " " + f.Value.String()
		}
	}
	return line
}

func (p *painter) runs(runs []runner.Run) {
	cols := []column{
		{head: "ID"}, {head: "NAME"}, {head: "STATE"}, {head: "DONE"}, {head: "FAILED", drop: 2}, {head: "QUEUE", drop: 3}, {head: "SUBMITTED", drop: 1},
		{head: "WAITING", wide: true}, {head: "LEASED", wide: true}, {head: "CANCELLED", wide: true}, {head: "SKIPPED", wide: true},
		{head: "BY", wide: true}, {head: "SOURCE", wide: true},
	}
	var rows [][]cell
	for _, r := range runs {
		c := r.Counts
		row := append(cells(r.ID, r.Name), p.runState(string(r.State)))
		row = append(row, cells(fmt.Sprintf("%d/%d", c.Total()-c.Open(), c.Total()), fmt.Sprint(c.Failed), r.Queue, stamp(r.SubmittedAt),
			fmt.Sprint(c.Blocked+c.Queued+c.Backoff), fmt.Sprint(c.Leased), fmt.Sprint(c.Cancelled), fmt.Sprint(c.Skipped), r.SubmittedBy, r.Source)...)
		rows = append(rows, row)
	}
	p.table(cols, rows)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// stampOr is a moment that may not have come.
func stampOr(t *time.Time, otherwise string) string {
	if t == nil {
		return otherwise
	}
	return stamp(*t)
}

func (p *painter) runState(s string) cell {
	switch s {
	case string(runner.RunSucceeded):
		return p.good(s)
	case string(runner.RunFailed), string(runner.RunCancelled), string(runner.JobSkipped):
		return p.bad(s)
	case string(runner.JobQueued), string(runner.JobBlocked), string(runner.JobBackoff):
		return p.warn(s)
	}
	return plain(s)
}
