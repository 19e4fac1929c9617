// forgeyard run why: the chain from submission to a running process, with the links that hold a job up.

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/roles/scheduler"
)

func (a *app) whyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "why RUN [JOB]", Short: "Say why the jobs of a run wait", Args: args(1, 2, "RUN [JOB]"),
		Example:           "  forgeyard run why 01JDVW\n  forgeyard run why 01JDVW test",
		ValidArgsFunction: a.completeRunJob,
		RunE: func(c *cobra.Command, given []string) error {
			id, err := a.runID(c.Context(), given[0])
			if err != nil {
				return err
			}
			var d scheduler.WhyDocument
			if err := a.get(c.Context(), whyPath(id), &d); err != nil {
				return err
			}
			if len(given) == 2 {
				return a.whyJob(c, d, given[1])
			}
			return a.print(whyResult(d))
		},
	}
}

// whyJob narrows the answer to one job. One that has ended is no longer in it.
func (a *app) whyJob(c *cobra.Command, d scheduler.WhyDocument, name string) error {
	run, err := a.run(c.Context(), d.Run)
	if err != nil {
		return err
	}
	j, err := jobOf(run, name)
	if err != nil {
		return err
	}
	d.Jobs = slices.DeleteFunc(d.Jobs, func(w scheduler.JobWhy) bool { return w.Job != j.Name })
	d.More = 0
	if len(d.Jobs) == 0 && j.State.Ended() && (a.format == formatTable || a.format == formatWide) {
		return a.print(result{draw: func(p *painter) {
			p.line("job %s waits for nothing: it has %s", j.Name, p.runState(string(j.State)))
			if j.Reason != "" {
				p.prose("why: %s", j.Reason)
			}
		}})
	}
	return a.print(whyResult(d))
}

func whyResult(d scheduler.WhyDocument) result {
	var names []string
	for _, j := range d.Jobs {
		names = append(names, "job/"+j.Job)
	}
	return result{doc: d, names: names, draw: func(p *painter) {
		if len(d.Jobs) == 0 {
			p.line("run %s waits for nothing: all its jobs have ended", d.Run)
			return
		}
		for i, j := range d.Jobs {
			if i > 0 {
				p.line("")
			}
			p.why(j, d.Scheduler)
		}
		if d.More > 0 {
			p.line("")
			p.line("and %d more %s that %s not ended", d.More, plural(d.More, "job"), map[bool]string{true: "has", false: "have"}[d.More == 1])
		}
		p.line("at %s", stamp(d.At))
	}}
}

// link is one condition on the way to a running process.
type link struct {
	name string
	code scheduler.ReasonCode
	fine string // what to say when it holds; "" for nothing
}

// links are in the order in which they come true.
func links(s scheduler.RoleState) []link {
	owner := s.Owner
	if owner == "" {
		owner = "a daemon"
	}
	return []link{
		{"cancel", scheduler.WaitsForCancel, ""},
		{"needs", scheduler.WaitsForNeeds, "none is open"},
		{"backoff", scheduler.WaitsForBackoff, ""},
		{"scheduler", scheduler.WaitsForScheduler, "active on " + owner},
		{"labels", scheduler.WaitsForLabels, "an agent carries them"},
		{"capacity", scheduler.WaitsForCapacity, "an agent is free"},
		{"turn", scheduler.WaitsForTurn, ""},
		{"agent", scheduler.WaitsForAgent, ""},
	}
}

// why draws one job's chain.
func (p *painter) why(j scheduler.JobWhy, s scheduler.RoleState) {
	if len(j.Reasons) == 0 {
		p.line("job %s runs (%s)", j.Job, j.State)
		return
	}
	p.line("job %s does NOT run (%s)", j.Job, p.runState(j.State))
	for _, l := range links(s) {
		r := reasonOf(j, l.code)
		switch {
		case r != nil:
			p.link(p.brokenMark(*r), l.name, r.Message)
			p.evidence(*r)
		case l.fine == "":
		case l.moot(j):
			p.link(plain("--"), l.name, "nobody to ask")
		default:
			p.link(p.good("ok"), l.name, l.fine)
		}
	}
	for _, fix := range fixes(j) {
		p.prose("fix: %s", fix)
	}
}

func reasonOf(j scheduler.JobWhy, code scheduler.ReasonCode) *scheduler.Reason {
	for i := range j.Reasons {
		if j.Reasons[i].Code == code {
			return &j.Reasons[i]
		}
	}
	return nil
}

// moot tells a link of which nothing can be said: the capacity of agents that
// do not carry the labels, and the labels of no agents.
func (l link) moot(j scheduler.JobWhy) bool {
	switch l.code {
	case scheduler.WaitsForCapacity:
		return reasonOf(j, scheduler.WaitsForLabels) != nil
	case scheduler.WaitsForLabels:
		r := reasonOf(j, scheduler.WaitsForCapacity)
		return r != nil && len(r.Agents) == 0
	}
	return false
}

func (p *painter) link(mark cell, name, text string) {
	p.hanging(18, "  %s%s %-10s %s", mark, strings.Repeat(" ", 4-len(mark.text)), name, text)
}

// waits tells ordinary waiting from something that an operator should look at.
func waits(r scheduler.Reason) bool {
	switch r.Code {
	case scheduler.WaitsForScheduler, scheduler.WaitsForLabels:
		return false
	case scheduler.WaitsForCapacity:
		return slices.ContainsFunc(r.Agents, func(f scheduler.AgentFit) bool { return f.State == "busy" })
	}
	return true
}

func (p *painter) brokenMark(r scheduler.Reason) cell {
	if waits(r) {
		return p.warn("wait")
	}
	return p.bad("FAIL")
}

func (p *painter) evidence(r scheduler.Reason) {
	if r.Until != nil {
		p.line("       until %s", stamp(*r.Until))
	}
	for _, f := range r.Agents {
		text := f.Detail
		if len(f.Missing) > 0 {
			text = "lacks " + strings.Join(f.Missing, ", ")
		}
		p.hanging(9, "       %s  %s  %d/%d slots  %s", f.Agent, f.State, f.Held, f.Slots, text)
	}
}

// fixes are what a person may do about a chain.
func fixes(j scheduler.JobWhy) []string {
	var out []string
	add := func(format string, args ...any) {
		if s := fmt.Sprintf(format, args...); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	for _, r := range j.Reasons {
		switch r.Code {
		case scheduler.WaitsForScheduler:
			add("see who should schedule: forgeyard cluster roles")
		case scheduler.WaitsForLabels:
			add("start an agent with the labels %s, or change the job's", strings.Join(j.Labels, ", "))
		case scheduler.WaitsForCapacity:
			if len(r.Agents) == 0 {
				add("start an agent: forgeyard agent --help")
			}
			for _, f := range r.Agents {
				switch f.State {
				case "quarantined":
					add("when %s is well again: forgeyard agents release %s", f.Agent, f.Agent)
				case "draining":
					add("let it take work again: forgeyard agents undrain %s", f.Agent)
				case "away":
					add("see what became of it: forgeyard agents show %s", f.Agent)
				}
			}
		}
	}
	return out
}
