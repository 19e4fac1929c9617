// forgeyard agents: who runs jobs, and what an operator does to one.

package cli

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/roles/runner"
)

func (a *app) agentsCommand() *cobra.Command {
	c := group(&cobra.Command{Use: "agents", Short: "See the agents, drain them, or keep work away from them"})
	c.AddCommand(a.agentsListCommand(), a.agentShowCommand(),
		a.agentActCommand("drain", "Let an agent finish what it runs and give it nothing new", false),
		a.agentActCommand("undrain", "Let a drained agent take work again", false),
		a.agentActCommand("quarantine", "Give an agent nothing until it is released", true),
		a.agentActCommand("release", "Let an agent out of quarantine", false))
	return c
}

func (a *app) agentsListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List every agent that was ever seen", Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			var l runner.AgentListDocument
			if err := a.get(c.Context(), "/v1/agents", &l); err != nil {
				return err
			}
			var names []string
			for _, x := range l.Agents {
				names = append(names, "agent/"+x.ID)
			}
			return a.print(result{doc: l, names: names, draw: func(p *painter) { p.agents(l.Agents, a.nodeNames(c.Context())) }})
		},
	}
}

// nodeNames are the names of the fleet's nodes by id; none when they cannot be read now.
func (a *app) nodeNames(ctx context.Context) map[string]string {
	names := map[string]string{}
	var l health.MemberList
	if a.get(ctx, "/v1/cluster/members", &l) == nil {
		for _, m := range l.Members {
			names[m.Node.String()] = m.Name
		}
	}
	return names
}

// nodeName is a node's name for people, its id where that is all there is.
func (a *app) nodeName(ctx context.Context, id string) string {
	if id == "" || a.structured() || a.format == formatName {
		return id
	}
	return named(a.nodeNames(ctx), id)
}

func named(names map[string]string, id string) string {
	if name := names[id]; name != "" {
		return name
	}
	return id
}

func (p *painter) agents(agents []runner.AgentInfo, nodes map[string]string) {
	cols := []column{
		{head: "AGENT"}, {head: "STATE"}, {head: "BUSY"}, {head: "NODE", drop: 3}, {head: "LABELS", drop: 2}, {head: "LAST SEEN", drop: 4},
		{head: "REASON", drop: 1}, {head: "BUILD", wide: true}, {head: "UNACCEPTED", wide: true}, {head: "FIRST SEEN", wide: true}, {head: "SESSION", wide: true},
	}
	var rows [][]cell
	for _, x := range agents {
		row := append(cells(x.ID), p.agentState(x.State))
		rows = append(rows, append(row, cells(fmt.Sprintf("%d/%d", x.Held, x.Slots), named(nodes, x.Node), strings.Join(x.Labels, ", "), stamp(x.LastSeen),
			x.QuarantineReason, x.Build, fmt.Sprint(x.Unaccepted), stamp(x.FirstSeen), x.Session)...))
	}
	p.table(cols, rows)
}

func (p *painter) agentState(s runner.AgentState) cell {
	switch s {
	case runner.AgentReady:
		return p.good(string(s))
	case runner.AgentQuarantined, runner.AgentAway:
		return p.bad(string(s))
	}
	return p.warn(string(s))
}

func agentPath(id string) string {
	return "/v1/agents/" + url.PathEscape(strings.TrimPrefix(id, "agent/"))
}

func (a *app) agentShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show AGENT", Short: "Show an agent and what it runs", Args: args(1, 1, "AGENT"), ValidArgsFunction: a.completeAgent,
		RunE: func(c *cobra.Command, given []string) error {
			var d runner.AgentDocument
			if err := a.get(c.Context(), agentPath(given[0]), &d); err != nil {
				return err
			}
			return a.print(result{doc: d, names: []string{"agent/" + d.ID}, draw: func(p *painter) { p.agent(d.AgentInfo, a.nodeName(c.Context(), d.Node)) }})
		},
	}
}

func (p *painter) agent(x runner.AgentInfo, node string) {
	p.line("%s  %s  %d of %d slots in use", p.agentState(x.State), x.ID, x.Held, x.Slots)
	facts := [][2]string{
		{"node", node}, {"labels", strings.Join(x.Labels, ", ")}, {"build", x.Build}, {"seen", stamp(x.LastSeen) + ", first " + stamp(x.FirstSeen)},
		{"drain", stampOr(x.DrainRequestedAt, "")}, {"quarantine", strings.TrimSpace(stampOr(x.QuarantinedAt, "") + "  " + x.QuarantineReason)},
	}
	if x.Unaccepted > 0 {
		facts = append(facts, [2]string{"unaccepted", fmt.Sprintf("%d %s in a row that it did not accept", x.Unaccepted, plural(x.Unaccepted, "lease"))})
	}
	for _, f := range facts {
		if f[1] != "" {
			p.hanging(14, "  %-11s %s", f[0], f[1])
		}
	}
	if len(x.Leases) == 0 {
		return
	}
	var rows [][]cell
	for _, l := range x.Leases {
		rows = append(rows, cells(l.Run, l.Job, fmt.Sprint(l.Attempt), stampOr(l.AcceptedAt, "not accepted yet"), stamp(l.ExpiresAt), l.Note, l.ID))
	}
	p.line("")
	p.table([]column{
		{head: "RUN"}, {head: "JOB"}, {head: "ATTEMPT", drop: 3}, {head: "ACCEPTED", drop: 2}, {head: "LEASE UNTIL", drop: 4}, {head: "NOTE", drop: 1}, {head: "LEASE", wide: true},
	}, rows)
}

// agentActCommand makes a command that changes an agent. Each may be repeated without harm.
func (a *app) agentActCommand(act, short string, needsReason bool) *cobra.Command {
	var reason string
	use := "AGENT"
	if needsReason {
		use += " --reason TEXT"
	}
	c := &cobra.Command{
		Use: act + " " + use, Short: short, Args: args(1, 1, use), ValidArgsFunction: a.completeAgent,
		RunE: func(c *cobra.Command, given []string) error {
			if needsReason && reason == "" {
				return usagef("add --reason TEXT: who finds the agent idle will ask", "%s needs a reason", act)
			}
			var d runner.AgentDocument
			err := a.call(c.Context(), func(ctx context.Context, c *client.Client) error {
				return c.Post(ctx, agentPath(given[0])+"/"+act, ulid.Make().String(), runner.AgentRequest{Reason: reason}, &d)
			})
			if err != nil {
				return err
			}
			return a.print(result{doc: d, names: []string{"agent/" + d.ID}, draw: func(p *painter) {
				p.line("agent %s is %s and runs %d %s", d.ID, p.agentState(d.State), d.Held, plural(d.Held, "job"))
				if act == "drain" && d.Held > 0 {
					p.line("next: forgeyard agents show %s", d.ID)
				}
			}})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return c
}
