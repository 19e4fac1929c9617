// forgeyard run submit|list|show: use the fleet.

package cli

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/roles/runner"
)

func (a *app) runCommand() *cobra.Command {
	c := group(&cobra.Command{Use: "run", Short: "Submit runs and see how they go"})
	c.AddCommand(a.submitCommand(), a.runListCommand(), a.runShowCommand())
	return c
}

func (a *app) runListCommand() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use: "list", Short: "List runs, newest first", Args: args(0, 0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 1 || limit > runner.MaxList {
				return usagef("for example --limit 50", "--limit must be between 1 and %d", runner.MaxList)
			}
			var l runner.RunListDocument
			q := url.Values{"limit": {strconv.Itoa(limit)}}
			err := a.call(c.Context(), func(ctx context.Context, c *client.Client) error { return c.Get(ctx, "/v1/runs", q, &l) })
			if err != nil {
				return err
			}
			var names []string
			for _, r := range l.Runs {
				names = append(names, "run/"+r.ID)
			}
			return a.print(result{doc: l, names: names, draw: func(p *painter) { p.runs(l.Runs) }})
		},
	}
	c.Flags().IntVar(&limit, "limit", runner.DefaultList, "how many")
	return c
}

func (p *painter) runs(runs []runner.Run) {
	cols := []column{
		{head: "ID"}, {head: "NAME"}, {head: "STATE"}, {head: "DONE"}, {head: "FAILED", drop: 2}, {head: "SUBMITTED", drop: 1},
		{head: "QUEUED", wide: true}, {head: "LEASED", wide: true}, {head: "CANCELLED", wide: true},
	}
	var rows [][]cell
	for _, r := range runs {
		c := r.Counts
		row := append(cells(r.ID, r.Name), p.runState(string(r.State)))
		row = append(row, cells(fmt.Sprintf("%d/%d", c.Total()-c.Open(), c.Total()), fmt.Sprint(c.Failed), stamp(r.SubmittedAt),
			fmt.Sprint(c.Queued), fmt.Sprint(c.Leased), fmt.Sprint(c.Cancelled))...)
		rows = append(rows, row)
	}
	p.table(cols, rows)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

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

func (a *app) runShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show RUN", Short: "Show a run, its jobs and their attempts", Args: args(1, 1, "RUN"),
		RunE: func(c *cobra.Command, ids []string) error {
			d, err := a.run(c.Context(), ids[0])
			if err != nil {
				return err
			}
			return a.print(runResult(d))
		},
	}
}

func (a *app) run(ctx context.Context, id string) (d runner.RunDocument, err error) {
	err = a.get(ctx, "/v1/runs/"+url.PathEscape(strings.TrimPrefix(id, "run/")), &d)
	return d, err
}

func runResult(d runner.RunDocument) result {
	return result{doc: d, names: []string{"run/" + d.ID}, draw: func(p *painter) {
		p.line("%s  %s  %s  submitted %s", p.runState(string(d.State)), d.Name, d.ID, stamp(d.SubmittedAt))
		cols := []column{
			{head: "JOB"}, {head: "STATE"}, {head: "ATTEMPT"}, {head: "AGENT", drop: 1}, {head: "EPOCH", drop: 3}, {head: "EXIT"},
			{head: "TOOK", drop: 4}, {head: "REASON", drop: 2}, {head: "ID", wide: true}, {head: "LEASE", wide: true},
			{head: "PRIORITY", wide: true}, {head: "TIMEOUT", wide: true}, {head: "COMMAND", wide: true},
		}
		var rows [][]cell
		for _, j := range d.Jobs {
			rows = append(rows, p.job(j))
		}
		p.table(cols, rows)
		p.tails(d.Jobs)
	}}
}

func (p *painter) job(j runner.Job) []cell {
	var l runner.Lease
	if n := len(j.Leases); n > 0 {
		l = j.Leases[n-1]
	}
	exit, took, epoch := "", "", ""
	if l.ExitCode != nil {
		exit = strconv.Itoa(*l.ExitCode)
	}
	if l.Duration != nil {
		took = span(time.Duration(*l.Duration).Milliseconds())
	}
	if l.Epoch != 0 {
		epoch = fmt.Sprint(uint64(l.Epoch))
	}
	reason := j.Reason
	if reason == "" {
		reason = l.Reason
	}
	row := append(cells(j.Name), p.runState(string(j.State)))
	return append(row, cells(fmt.Sprintf("%d/%d", j.Attempt, j.AttemptLimit), l.Agent, epoch, exit, took, reason, j.ID, l.ID,
		strconv.Itoa(j.Priority), time.Duration(j.Timeout).String(), command(j.Steps))...)
}

// command is what a job runs, on one line.
func command(steps []runner.Step) string {
	var all []string
	for _, s := range steps {
		all = append(all, strings.Join(s.Argv, " "))
	}
	return strings.Join(all, "; ")
}

// maxTail is how many output tails are shown; -o json has all of them.
const maxTail = 3

// tails shows what failed jobs last wrote, and what the only job of a run did.
func (p *painter) tails(jobs []runner.Job) {
	shown := 0
	for _, j := range jobs {
		n := len(j.Leases)
		if (j.State != runner.JobFailed && len(jobs) > 1) || n == 0 || j.Leases[n-1].OutputTail == "" {
			continue
		}
		if shown++; shown > maxTail {
			p.line("")
			p.line("more jobs failed; all output tails: forgeyard run show -o json")
			return
		}
		p.line("")
		p.line("last output of %s:", j.Name)
		for l := range strings.SplitSeq(strings.TrimRight(j.Leases[n-1].OutputTail, "\n"), "\n") {
			p.line("  %s", l)
		}
	}
}
