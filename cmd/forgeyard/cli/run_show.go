// forgeyard run show: a run, its jobs, their attempts and what they left behind.

package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/roles/runner"
)

func (a *app) runShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show RUN", Short: "Show a run, its jobs, their attempts and artifacts", Args: args(1, 1, "RUN"),
		ValidArgsFunction: a.completeRun,
		RunE: func(c *cobra.Command, given []string) error {
			id, err := a.runID(c.Context(), given[0])
			if err != nil {
				return err
			}
			d, err := a.run(c.Context(), id)
			if err != nil {
				return err
			}
			why := ""
			if d.State == runner.RunRunning && d.Counts.Leased == 0 && !a.structured() && a.format != formatName {
				why = a.waitsFor(c.Context(), id)
			}
			return a.print(runResult(d, why))
		},
	}
}

// runResult shows a run; why is the reason for which it waits, "" for none.
func runResult(d runner.RunDocument, why string) result {
	return result{doc: d, names: []string{"run/" + d.ID}, draw: func(p *painter) {
		p.run(d.Run)
		p.tails(d.Jobs, d.ID)
		if why != "" {
			p.prose("waits: %s", why)
		}
	}}
}

// run draws all but output.
func (p *painter) run(r runner.Run) {
	p.line("%s  %s  %s  submitted %s", p.runState(string(r.State)), r.Name, r.ID, stamp(r.SubmittedAt))
	p.origin(r)
	cols := []column{
		{head: "JOB"}, {head: "STATE"}, {head: "ATTEMPT"}, {head: "AGENT", drop: 1}, {head: "EPOCH", drop: 4}, {head: "EXIT"},
		{head: "TOOK", drop: 5}, {head: "NEEDS", drop: 3}, {head: "REASON", drop: 2}, {head: "ID", wide: true}, {head: "LEASE", wide: true},
		{head: "PRIORITY", wide: true}, {head: "TIMEOUT", wide: true}, {head: "LABELS", wide: true}, {head: "STEPS", wide: true},
	}
	var rows [][]cell
	for _, j := range r.Jobs {
		rows = append(rows, p.job(j))
	}
	p.table(cols, rows)
	p.attempts(r.Jobs)
	p.left(r.Jobs)
}

// origin says where a run comes from, as far as it is told.
func (p *painter) origin(r runner.Run) {
	var parts []string
	if r.Queue != "" {
		parts = append(parts, "queue "+r.Queue)
	}
	if r.SubmittedBy != "" {
		parts = append(parts, "by "+r.SubmittedBy)
	}
	if source := r.Source; source != "" {
		if !p.wide {
			source = source[:min(len(source), len("sha256:")+12)]
		}
		parts = append(parts, "source "+source)
	}
	if len(parts) > 0 {
		p.line("%s", strings.Join(parts, "  "))
	}
}

func (p *painter) job(j runner.Job) []cell {
	var l runner.Lease
	if n := len(j.Leases); n > 0 {
		l = j.Leases[n-1]
	}
	reason := j.Reason
	for _, other := range []string{l.Reason, l.Note} {
		if reason == "" {
			reason = other
		}
	}
	row := append(cells(j.Name), p.runState(string(j.State)))
	return append(row, cells(fmt.Sprintf("%d/%d", j.Attempt, j.AttemptLimit), l.Agent, epochOf(l), exitText(l), tookText(l),
		strings.Join(j.Needs, ", "), reason, j.ID, l.ID,
		strconv.Itoa(j.Priority), time.Duration(j.Timeout).String(), strings.Join(j.Labels, ", "), command(j.Steps))...)
}

func epochOf(l runner.Lease) string {
	if l.Epoch == 0 {
		return ""
	}
	return fmt.Sprint(uint64(l.Epoch))
}

func exitText(l runner.Lease) string {
	if l.ExitCode == nil {
		return ""
	}
	return strconv.Itoa(*l.ExitCode)
}

func tookText(l runner.Lease) string {
	if l.Duration == nil {
		return ""
	}
	return span(time.Duration(*l.Duration).Milliseconds())
}

// command is what a job runs, on one line.
func command(steps []runner.Step) string {
	var all []string
	for _, s := range steps {
		one := strings.Join(s.Argv, " ")
		if s.Name != "" {
			one = s.Name + ": " + one
		}
		all = append(all, one)
	}
	return strings.Join(all, "; ")
}

// attempts shows every attempt of the jobs that needed more than one; with -o wide of all.
func (p *painter) attempts(jobs []runner.Job) {
	cols := []column{
		{head: "ATTEMPT OF"}, {head: "NO"}, {head: "AGENT"}, {head: "OUTCOME"}, {head: "EXIT", drop: 3}, {head: "TOOK", drop: 4},
		{head: "ENDED", drop: 2}, {head: "REASON", drop: 1}, {head: "LOG", wide: true}, {head: "EPOCH", wide: true}, {head: "LEASE", wide: true},
	}
	var rows [][]cell
	for _, j := range jobs {
		if len(j.Leases) < 2 && !p.wide {
			continue
		}
		for _, l := range j.Leases {
			outcome := string(l.Outcome)
			if outcome == "" {
				outcome = string(l.State)
			}
			reason := l.Reason
			if reason == "" {
				reason = l.Note
			}
			row := append(cells(j.Name, strconv.Itoa(l.Attempt), l.Agent), p.runState(outcome))
			rows = append(rows, append(row, cells(exitText(l), tookText(l), stampOr(l.EndedAt, ""), reason, bytesText(l.LogBytes), epochOf(l), l.ID)...))
		}
	}
	if len(rows) > 0 {
		p.line("")
		p.table(cols, rows)
	}
}

// left lists the artifacts of attempts that succeeded.
func (p *painter) left(jobs []runner.Job) {
	var rows [][]cell
	for _, j := range jobs {
		for _, l := range j.Leases {
			for _, x := range l.Artifacts {
				if l.Outcome == runner.Succeeded {
					rows = append(rows, cells(j.Name+"/"+x.Name, x.Path, bytesText(x.Size), x.Digest))
				}
			}
		}
	}
	if len(rows) > 0 {
		p.line("")
		p.table([]column{{head: "ARTIFACT"}, {head: "PATH", drop: 1}, {head: "SIZE"}, {head: "DIGEST", wide: true}}, rows)
	}
}

// Bounds of the output that is shown; -o json and run logs have all of it.
const (
	maxTail   = 3 // jobs
	tailLines = 20
)

// tails shows what failed jobs last wrote, and what the only job of a run did.
func (p *painter) tails(jobs []runner.Job, run string) {
	shown := 0
	for _, j := range jobs {
		n := len(j.Leases)
		if (j.State != runner.JobFailed && len(jobs) > 1) || n == 0 || j.Leases[n-1].OutputTail == "" {
			continue
		}
		if shown++; shown > maxTail {
			p.line("")
			p.line("more jobs failed; whole logs: forgeyard run logs %s", run)
			return
		}
		p.line("")
		p.tail(j.Name, strings.Split(strings.TrimRight(j.Leases[n-1].OutputTail, "\n"), "\n"), run)
	}
}

func (p *painter) tail(job string, lines []string, run string) {
	if left := len(lines) - tailLines; left > 0 {
		lines = lines[left:]
		p.line("last output of %s; all of it: forgeyard run logs %s %s", job, run, job)
	} else {
		p.line("last output of %s:", job)
	}
	for _, l := range lines {
		p.line("  %s", l)
	}
}
