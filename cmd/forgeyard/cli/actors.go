// forgeyard actors: the living actors and loops of one daemon.

package cli

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/fsm"
)

func (a *app) actorsCommand() *cobra.Command {
	var depth int
	var path string
	c := &cobra.Command{
		Use: "actors", Short: "Show the actors of the daemon that answers", Args: noArguments,
		Long:    "Show the actors and loops of the daemon that answers: what runs under which role and epoch, its mailbox and its restarts.",
		Example: "  forgeyard actors\n  forgeyard actors --path roles/SchedulerLeader -o wide",
		RunE: func(c *cobra.Command, _ []string) error {
			q := url.Values{}
			if depth >= 0 {
				q.Set("depth", strconv.Itoa(depth))
			}
			if path != "" {
				q.Set("path", path)
			}
			var f actors.Forest
			err := a.call(c.Context(), func(ctx context.Context, c *client.Client) error { return c.Get(ctx, "/v1/cluster/actors", q, &f) })
			if err != nil {
				return err
			}
			return a.print(actorsResult(f, a.elsewhere(c.Context(), f)))
		},
	}
	c.Flags().IntVar(&depth, "depth", -1, "levels below the root; -1 is all")
	c.Flags().StringVar(&path, "path", "", "only this actor and what is under it")
	return c
}

// elsewhere says who runs the roles that the answering daemon has a place for
// and does not run. It asks for the status only when there are such, and
// only for people: without an answer nothing is said.
func (a *app) elsewhere(ctx context.Context, f actors.Forest) []string {
	var idle []fsm.Role
	for _, i := range f.Actors {
		if i.Kind == actors.KindRoleSupervisor && !slices.ContainsFunc(f.Actors, func(x actors.ActorInfo) bool { return x.Kind == actors.KindRole && x.Role == i.Role }) {
			idle = append(idle, i.Role)
		}
	}
	if len(idle) == 0 || a.structured() || a.format == formatName {
		return nil
	}
	s, err := a.status(ctx)
	if err != nil {
		return nil
	}
	var hints []string
	for _, r := range s.RoleRows {
		switch {
		case !slices.Contains(idle, r.Role) || r.Owner == f.Node: // its tree may be left out by --depth
		case r.Owner.IsZero():
			hints = append(hints, fmt.Sprintf("no member runs %s; why: forgeyard cluster roles", r.Role))
		default:
			hints = append(hints, fmt.Sprintf("%s runs on %s; ask it: forgeyard actors --endpoint %s", r.Role, r.OwnerName, a.addressOf(r.OwnerName)))
		}
	}
	return hints
}

// addressOf says what to write for a member: the fleet does not tell where its members serve the API.
func (a *app) addressOf(member string) string {
	if all := a.endpointNames(); len(all) > 1 {
		return "ADDRESS, one of " + strings.Join(all, ", ")
	}
	return "ADDRESS, the API or admin socket of " + member
}

func actorsResult(f actors.Forest, hints []string) result {
	var names []string
	for _, i := range f.Actors {
		names = append(names, "actor/"+i.Path)
	}
	return result{doc: f, names: names, draw: func(p *painter) {
		cols := []column{
			{head: "PATH"}, {head: "KIND", drop: 3}, {head: "EPOCH"}, {head: "GUARD"}, {head: "STATE", drop: 4}, {head: "MAILBOX"},
			{head: "OLDEST", drop: 2}, {head: "RESTARTS"}, {head: "LAST FAILURE", drop: 1}, {head: "MESSAGES", wide: true},
			{head: "STARTED", wide: true}, {head: "LAST SCAN", wide: true},
		}
		var rows [][]cell
		for _, i := range f.Actors {
			row := cells(i.Path, string(i.Kind), epochText(i), guardText(i), i.State, fmt.Sprint(i.MailboxDepth))
			row = append(row, cells(span(i.OldestMessageAge.Milliseconds()), fmt.Sprint(i.Restarts), i.LastFailure,
				fmt.Sprint(i.Messages), i.StartedAt.UTC().Format("2006-01-02T15:04:05Z"), strings.TrimSpace(i.LastScan.Result))...)
			rows = append(rows, row)
		}
		p.table(cols, rows)
		p.prose("as seen by %s, read: local; %d %s, %d dead letters, %d unhandled", f.NodeName, len(f.Actors), entries(len(f.Actors)), f.DeadLetters, f.Unhandled)
		for _, h := range hints {
			p.prose("now: %s", h)
		}
	}}
}

func entries(n int) string {
	if n == 1 {
		return "entry"
	}
	return "entries"
}

func epochText(i actors.ActorInfo) string {
	if i.Epoch == 0 {
		return ""
	}
	return fmt.Sprint(uint64(i.Epoch))
}

func guardText(i actors.ActorInfo) string {
	if i.GuardState == cluster.GuardNone {
		return ""
	}
	return i.GuardState.String()
}
