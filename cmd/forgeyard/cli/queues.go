// forgeyard queues: how much waits, how long, and for which labels.

package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/scheduler"
)

func (a *app) queuesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "queues", Short: "Show what waits, by queue and by the labels it asks for", Args: noArguments,
		Long: "Show how many jobs wait, how long the oldest has, and for which labels: what an autoscaler of agents wants to know.",
		RunE: func(c *cobra.Command, _ []string) error {
			var d scheduler.QueuesDocument
			if err := a.get(c.Context(), "/v1/queues", &d); err != nil {
				return err
			}
			return a.print(queuesResult(d))
		},
	}
}

func queuesResult(d scheduler.QueuesDocument) result {
	var names []string
	for _, q := range d.Queues {
		names = append(names, "queue/"+q.Queue)
	}
	return result{doc: d, names: names, draw: func(p *painter) {
		switch d.Depth {
		case 0:
			p.line("no job waits; %d running", d.Active)
		case 1:
			p.line("1 job waits, for %s; %d running", waited(d.OldestWait), d.Active)
		default:
			p.line("%d jobs wait, the oldest for %s; %d running", d.Depth, waited(d.OldestWait), d.Active)
		}
		if len(d.Queues) == 0 {
			return
		}
		var rows [][]cell
		for _, q := range d.Queues {
			rows = append(rows, cells(q.Queue, fmt.Sprint(q.Depth), waited(q.OldestWait)))
		}
		p.line("")
		p.table([]column{{head: "QUEUE"}, {head: "WAITING"}, {head: "OLDEST"}}, rows)
		drawRest(p, d.MoreQueues, "queues")
		rows = nil
		for _, l := range d.Labels {
			labels := strings.Join(l.Labels, ", ")
			if labels == "" {
				labels = "(any agent)"
			}
			agents := plain(fmt.Sprint(l.Agents))
			if l.Agents == 0 {
				agents = p.bad("0")
			}
			rows = append(rows, append(cells(labels, fmt.Sprint(l.Depth), waited(l.OldestWait)), agents, plain(fmt.Sprint(l.Free))))
		}
		p.line("")
		p.table([]column{{head: "LABELS"}, {head: "WAITING"}, {head: "OLDEST"}, {head: "AGENTS"}, {head: "FREE SLOTS"}}, rows)
		drawRest(p, d.MoreLabels, "sets of labels")
	}}
}

// drawRest tells what a list leaves out.
func drawRest(p *painter, r *scheduler.Rest, what string) {
	if r == nil {
		return
	}
	p.prose("and %d more %s: %d waiting, the oldest for %s", r.Count, what, r.Depth, waited(r.OldestWait))
}

func waited(d runner.Duration) string { return span(time.Duration(d).Milliseconds()) }
