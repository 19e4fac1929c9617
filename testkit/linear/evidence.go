// Histories from what a fleet leaves behind: traces of daemons, journals of agents, rows of PostgreSQL.

package linear

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// Raises reads from the traces of all processes, in any order, when each owner
// raised its fence: called after the grant, answered before it was fenced. One
// that never was may have raised it all the same.
func Raises(events []trace.Event) []Grant {
	type key struct {
		role  fsm.Role
		epoch fsm.Epoch
		owner string
	}
	at := map[key]int{}
	var history []Grant
	for _, e := range events {
		k := key{e.Role, e.Epoch, Process(e.Node, e.Incarnation)}
		i, known := at[k]
		switch {
		case e.Kind == trace.Grant:
			at[k] = len(history)
			history = append(history, Grant{
				Interval: Interval{e.Mono, Open}, Kind: Raise, Role: e.Role, Generation: e.Generation, Epoch: e.Epoch, Owner: k.owner, Outcome: Unknown,
			})
		case e.Kind == trace.Fenced && known:
			history[i].Return, history[i].Outcome = e.Mono, Done
		}
	}
	return history
}

// Journals reads from the agents' journals, by agent, when each held a lease:
// it got it between the order and the start. done tells which leases the database
// has as completed; of those the result was accepted between the end of the work
// and the daemon's word. Any other was ended by the fenced expiry, some time later.
func Journals(journals map[string][]runner.Entry, done func(lease string) bool) []Lease {
	var history []Lease
	for agent, entries := range journals {
		ordered := map[string]int64{} // when a lease's order was first accepted
		last := map[string]int{}      // where the end of a lease stands in the history
		for _, e := range entries {
			op := Lease{Job: e.Job, Holder: agent, Attempt: e.Attempt}
			switch e.What {
			case runner.EntryDispatch:
				if _, again := ordered[e.Lease]; !again {
					ordered[e.Lease] = e.Mono
				}
			case runner.EntryStart:
				took := op
				took.Kind, took.Interval = Take, Interval{ordered[e.Lease], e.Mono}
				op.Kind, op.Interval, op.Outcome = Expire, Interval{e.Mono, Open}, Unknown
				if done(e.Lease) {
					op.Kind, op.Outcome = Complete, Done
				}
				last[e.Lease] = len(history) + 1
				history = append(history, took, op)
			case runner.EntryFinish:
				if i, started := last[e.Lease]; started && history[i].Kind == Complete {
					history[i].Call = e.Mono
				}
			case runner.EntryClose:
				if i, started := last[e.Lease]; started && history[i].Kind == Complete {
					history[i].Return = e.Mono
				}
			}
		}
	}
	return history
}

// Recorded reads what the triggers of testkit/history wrote. Its rows of one role,
// or of one job, stand in the order of their commits, because each was drawn
// under the lock that its writer held: so the history has no two operations at a
// time. Writes of one owner with nothing between them are one observation; those
// of jobs and orders are nothing else.
func Recorded(ctx context.Context, conn *pgx.Conn) (grants []Grant, leases []Lease, err error) {
	rows, err := conn.Query(ctx, `SELECT seq, kind, coalesce(substr(role, 6), '0')::int, generation, coalesce(epoch, 0), coalesce(node || '/' || inc, ''),
 coalesce(subject, ''), coalesce(attempt, 0), coalesce(state, '') FROM public.hist WHERE kind IN ('acquire', 'write', 'complete') ORDER BY seq`)
	if err != nil {
		return nil, nil, fmt.Errorf("read the history: %w", err)
	}
	var seq, generation, epoch int64
	var kind, owner, job, state string
	var role, attempt int
	last := map[fsm.Role]Grant{}
	_, err = pgx.ForEachRow(rows, []any{&seq, &kind, &role, &generation, &epoch, &owner, &job, &attempt, &state}, func() error {
		at := Interval{2 * seq, 2*seq + 1}
		grant := Grant{Interval: at, Kind: Observe, Role: fsm.Role(role), Owner: owner, Generation: fsm.Generation(generation), Epoch: fsm.Epoch(epoch)}
		lease := Lease{Interval: at, Kind: Expire, Job: job, Attempt: attempt}
		switch {
		case kind == "acquire":
			grant.Kind = Raise
			grants = append(grants, grant)
			last[grant.Role] = grant
			return nil
		case kind == "complete":
			lease.Kind = Complete
			leases = append(leases, lease)
			return nil
		case state == "active":
			lease.Kind = Take
			leases = append(leases, lease)
		case state == "expired":
			leases = append(leases, lease)
		}
		if before, seen := last[grant.Role]; !seen || !same(before, grant) {
			grants = append(grants, grant)
			last[grant.Role] = grant
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read the history: %w", err)
	}
	return grants, leases, nil
}

// same reports whether two operations differ in their time only.
func same(a, b Grant) bool {
	a.Interval = b.Interval
	return a == b
}
