// forgeyard cluster status|members|roles: what the fleet says of itself.

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/fsm"
)

func (a *app) clusterCommand() *cobra.Command {
	c := group(&cobra.Command{Use: "cluster", Short: "See and change the fleet of daemons"})
	c.AddCommand(a.statusCommand(), a.membersCommand(), a.rolesCommand(), a.addCommand(), a.promoteCommand())
	return c
}

func (a *app) statusCommand() *cobra.Command {
	var watch, strict bool
	c := &cobra.Command{
		Use: "status", Short: "Show leader, quorum, roles and what is wrong", Args: noArguments,
		Long: "Show leader, quorum, roles and what is wrong. Exits 4 when there is no quorum, and with --strict 3 when\n" +
			"the fleet is degraded. With --watch the screen is redrawn in place; in a pipe each change is one line of JSON.",
		Example: "  forgeyard cluster status\n  forgeyard cluster status --watch\n  forgeyard cluster status -o json --strict",
		RunE: func(c *cobra.Command, _ []string) error {
			if watch {
				return a.watch(c.Context(), a.fetchStatus)
			}
			s, err := a.status(c.Context())
			if err != nil {
				return err
			}
			if err := a.print(statusResult(s)); err != nil {
				return err
			}
			return statusVerdict(s, strict)
		},
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "follow changes until Ctrl-C")
	c.Flags().BoolVar(&strict, "strict", false, "exit 3 when degraded")
	return c
}

func statusVerdict(s health.ClusterStatus, strict bool) error {
	switch s.Headline {
	case health.NoQuorum, health.Unknown:
		return verdict{ExitUnhealthy}
	case health.Degraded:
		if strict {
			return verdict{ExitDegraded}
		}
	}
	return nil
}

func (a *app) status(ctx context.Context) (s health.ClusterStatus, err error) {
	err = a.get(ctx, "/v1/cluster/status", &s)
	return s, err
}

func (a *app) fetchStatus(ctx context.Context) (any, func(*painter), error) {
	s, err := a.status(ctx)
	return s, statusResult(s).draw, err
}

func (a *app) get(ctx context.Context, path string, out any) error {
	return a.call(ctx, func(ctx context.Context, c *client.Client) error { return c.Get(ctx, path, nil, out) })
}

func statusResult(s health.ClusterStatus) result {
	names := []string{"cluster/" + s.ClusterName}
	return result{doc: s, names: names, draw: func(p *painter) {
		p.line("%s%s", p.headline(s.Headline), headlineTail(s))
		facts := [][2]string{
			{"cluster", fmt.Sprintf("%s  %s", s.ClusterName, s.ClusterID)},
			{"leader", leaderText(s)},
			{"voters", fmt.Sprintf("%s of %d healthy, quorum %d, can lose %s", count(s.Quorum.VotersHealthy), s.Quorum.VotersTotal, s.Quorum.Needed, count(s.Quorum.CanLose))},
			{"log", fmt.Sprintf("term %d, applied %d, epoch %d, generation %d", s.Term, s.AppliedIndex, s.Epoch, s.Generation)},
			{"roles", fmt.Sprintf("%d of %d active", s.Roles.Active, s.Roles.Runnable)},
			{"postgres", postgresText(s.PostgreSQL)},
			{"maintenance", s.Maintenance.State.String()},
		}
		for _, f := range facts {
			p.hanging(15, "  %-12s %s", f[0], f[1])
		}
		p.line("")
		p.members(s.Members, s.Reasons)
		if offered, _ := offer(s.RoleRows); len(offered) > 0 {
			p.line("")
			p.roles(offered)
		}
		for _, n := range s.Notes {
			p.prose("note: %s", n)
		}
		p.provenance(s.Provenance)
		p.problem(s.Reasons, s.Hint)
	}}
}

func (p *painter) headline(h health.Headline) cell {
	switch h {
	case health.Healthy:
		return p.good(string(h))
	case health.Degraded:
		return p.warn(string(h))
	}
	return p.bad(string(h))
}

func headlineTail(s health.ClusterStatus) string {
	switch s.Headline {
	case health.Healthy:
		return fmt.Sprintf(" - can lose %s more %s", count(s.Quorum.CanLose), plural(s.Quorum.CanLose, "voter"))
	case health.Degraded:
		if missing := len(s.PostgreSQL.Missing); missing > 0 && len(s.PostgreSQL.Writable) == 0 {
			if missing < len(s.Members) { // nothing is known of the others
				return " - no daemon is known that can write to PostgreSQL"
			}
			return " - no daemon can write to PostgreSQL: no run is accepted, no job started"
		}
		return fmt.Sprintf(" - writes continue, can lose %s more %s", count(s.Quorum.CanLose), plural(s.Quorum.CanLose, "voter"))
	case health.NoQuorum:
		return " - writes stopped; running jobs go on"
	}
	return " - cannot tell: no leader has confirmed what this node knows"
}

func leaderText(s health.ClusterStatus) string {
	if s.Leader.Node.IsZero() {
		return "none known"
	}
	if s.Headline == health.Unknown {
		return "not confirmed; the last one known is " + s.Leader.Name
	}
	return fmt.Sprintf("%s for %s, leader epoch %d of term %d", s.Leader.Name, span(s.Leader.SinceMS), s.Leader.Epoch.Epoch, s.Leader.Epoch.Term)
}

func postgresText(s health.PostgresStatus) string {
	var parts []string
	if len(s.Writable) > 0 {
		parts = append(parts, "writable from "+strings.Join(s.Writable, ", "))
	}
	if len(s.Missing) > 0 {
		parts = append(parts, "NOT from "+strings.Join(s.Missing, ", "))
	}
	if len(parts) == 0 {
		return "unknown"
	}
	return strings.Join(parts, "; ")
}

// problem says why the headline is not HEALTHY and what to do; it comes last, where the eye is.
func (p *painter) problem(reasons []string, hint string) {
	for _, r := range reasons {
		p.prose("why: %s", r)
	}
	if hint != "" {
		p.prose("now: %s", hint)
	}
}

// banner warns above a list when there is no quorum, because the list may be behind.
func (p *painter) banner(h health.Headline) {
	if h == health.NoQuorum || h == health.Unknown {
		p.prose("%s - this is what one node last knew; it may be behind", p.bad(string(h)))
	}
}

// provenance ends every read: who says so, and how fresh it is.
func (p *painter) provenance(v health.Provenance) {
	age := "never confirmed"
	if v.FreshnessMS >= 0 {
		age = span(v.FreshnessMS) + " old"
	}
	as := v.As
	if as == "none" || as == "" {
		as = "no leader known"
	}
	p.prose("as seen by %s (%s), read: %s, %s", v.ObservedName, as, string(v.Read), age)
}

func (a *app) membersCommand() *cobra.Command {
	return &cobra.Command{
		Use: "members", Short: "List every member, reachable or not", Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			var l health.MemberList
			if err := a.get(c.Context(), "/v1/cluster/members", &l); err != nil {
				return err
			}
			var names []string
			for _, m := range l.Members {
				names = append(names, "member/"+m.Name)
			}
			return a.print(result{doc: l, names: names, draw: func(p *painter) {
				p.banner(l.Headline)
				p.members(l.Members, l.Reasons)
				p.provenance(l.Provenance)
				p.problem(l.Reasons, "")
			}})
		},
	}
}

// members draws the table. told are the reasons that are shown anyway. The
// reason of a member is long, so it goes first, to a line of its own: the facts
// of an outage stay in the table.
func (p *painter) members(rows []health.MemberRow, told []string) {
	cols := []column{
		{head: "NAME"}, {head: "STATE"}, {head: "ROLE"}, {head: "HEALTH"}, {head: "LAG", drop: 1}, {head: "LAST CONTACT"},
		{head: "POSTGRES", drop: 2}, {head: "VERSION", drop: 3}, {head: "REASON", drop: 4}, {head: "ID", wide: true},
		{head: "ADDR", wide: true}, {head: "AGENTS", wide: true}, {head: "PROTOCOL", wide: true},
	}
	var out [][]cell
	for _, m := range rows {
		name, role := m.Name, strings.ToLower(m.Role.String())
		if m.Self {
			name += "*"
		}
		if m.Leader {
			role = "leader"
		}
		row := cells(name, strings.ToLower(m.State.String()), role)
		row = append(row, p.memberHealth(m.Health))
		row = append(row, cells(amount(m.LagEntries), ago(m.ContactMS), yesNo(m.PGWritable), m.Build, m.Reason,
			m.Node.String(), string(m.Endpoint), string(m.Agents), fmt.Sprintf("%d-%d", m.Protocol.Min, m.Protocol.Max))...)
		out = append(out, row)
	}
	if slices.Contains(p.table(cols, out), "REASON") {
		return
	}
	for _, m := range rows {
		tells := func(r string) bool { // the name is a whole word of it
			return strings.Contains(" "+r, " "+m.Name+" is ") && strings.Contains(r, m.Reason)
		}
		if m.Reason != "" && !slices.ContainsFunc(told, tells) {
			p.hanging(2, "%s: %s", m.Name, m.Reason)
		}
	}
}

func (p *painter) memberHealth(h health.MemberHealth) cell {
	switch h {
	case health.MemberHealthy:
		return p.good(string(h))
	case health.MemberUnreachable:
		return p.bad(string(h))
	}
	return p.warn(string(h))
}

func (a *app) rolesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "roles", Short: "List the coordinated roles, their owners, and why", Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			var l health.RoleList
			if err := a.get(c.Context(), "/v1/cluster/roles", &l); err != nil {
				return err
			}
			var names []string
			for _, r := range l.Roles {
				names = append(names, "role/"+r.Role.String())
			}
			return a.print(result{doc: l, names: names, draw: func(p *painter) {
				p.banner(l.Headline)
				offered, others := offer(l.Roles)
				p.roles(offered)
				if len(others) > 0 {
					p.prose("not offered by any member: %s", strings.Join(others, ", "))
				}
				p.provenance(l.Provenance)
			}})
		},
	}
}

// offer parts the roles that some member can run from the names of those that none can.
func offer(rows []health.RoleRow) (offered []health.RoleRow, others []string) {
	for _, r := range rows {
		if !r.Unregistered {
			offered = append(offered, r)
		} else {
			others = append(others, r.Role.String())
		}
	}
	return offered, others
}

func (p *painter) roles(rows []health.RoleRow) {
	cols := []column{
		{head: "ROLE"}, {head: "OWNER"}, {head: "EPOCH"}, {head: "OWNED", drop: 3}, {head: "FENCED", drop: 3}, {head: "ACTIVE"},
		{head: "WHY", drop: 1}, {head: "LAST RELEASE", wide: true}, {head: "BACKOFF", wide: true}, {head: "INCARNATION", wide: true},
	}
	var out [][]cell
	for _, r := range rows {
		row := cells(r.Role.String(), r.OwnerName, fmt.Sprint(uint64(r.Epoch)))
		row = append(row, p.fact(r.Owned), p.fact(r.Fenced), p.fact(r.Active))
		row = append(row, cells(r.Why, releaseText(r.LastRelease), backoffText(r.Backoff), incarnation(r.Incarnation))...)
		out = append(out, row)
	}
	if slices.Contains(p.table(cols, out), "WHY") {
		return
	}
	for _, r := range rows { // a narrow terminal must not hide why a role does nothing
		if r.Active != health.Yes && r.Why != "" {
			p.hanging(2, "%s: %s", r.Role.String(), r.Why)
		}
	}
}

func incarnation(id fsm.IncarnationID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

func (p *painter) fact(f health.Fact) cell {
	switch f {
	case health.Yes:
		return p.good(string(f))
	case health.No:
		return p.bad(string(f))
	}
	return p.warn(string(f))
}

func releaseText(r *fsm.Release) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("epoch %d %s: %s", r.Epoch, r.Code, r.Reason)
}

func backoffText(rows []health.BackoffRow) string {
	parts := make([]string, len(rows))
	for i, b := range rows {
		parts[i] = fmt.Sprintf("%s %s", b.Name, span(b.LeftMS))
	}
	return strings.Join(parts, ", ")
}
