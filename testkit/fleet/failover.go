// Killing the leader and watching the work go on.

package fleet

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// Failover is what one kill of the leader cost.
type Failover struct {
	Node                    string
	PID                     int
	FinishedBefore          int // jobs that were terminal at the kill
	EpochBefore, EpochAfter fsm.Epoch
	Took                    time.Duration // from the kill to the first lease of the new epoch, by PostgreSQL's clock
}

// KillLeader ends the scheduler's owner, which leads, with kill -9 and returns
// once another daemon leases under a higher epoch. There must be work to lease.
func (f *Fleet) KillLeader(ctx context.Context) (Failover, error) {
	owner, before, err := f.RoleOwner(ctx, fsm.SchedulerLeader, 0)
	if err != nil {
		return Failover{}, err
	}
	out := Failover{Node: owner.Name, PID: owner.PID(), EpochBefore: before}
	if err := f.Query(ctx, `SELECT count(*) FROM forge.jobs WHERE finished_at IS NOT NULL`, nil, &out.FinishedBefore); err != nil {
		return out, err
	}
	if err := owner.Kill(); err != nil {
		return out, err
	}
	killed := time.Now()
	out.Took, out.EpochAfter, err = f.FirstLeaseAbove(ctx, before, killed)
	return out, err
}

// FirstLeaseAbove waits for a lease of an epoch above before and says how long
// after a moment it was made. Daemons, fleet and PostgreSQL share this machine's clock.
func (f *Fleet) FirstLeaseAbove(ctx context.Context, before fsm.Epoch, since time.Time) (time.Duration, fsm.Epoch, error) {
	for {
		var at *time.Time
		var epoch *int64
		if err := f.Query(ctx, `SELECT min(leased_at), min(epoch) FROM forge.leases WHERE epoch > $1`, []any{int64(before)}, &at, &epoch); err != nil {
			return 0, 0, err
		}
		if at != nil {
			return at.Sub(since), fsm.Epoch(*epoch), nil
		}
		select {
		case <-ctx.Done():
			return 0, 0, fmt.Errorf("no lease under an epoch above %d: %w", before, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// WaitFinished returns once at least count jobs are terminal.
func (f *Fleet) WaitFinished(ctx context.Context, count int) error {
	return f.waitCount(ctx, "finished jobs", `SELECT count(*) FROM forge.jobs WHERE finished_at IS NOT NULL`, count)
}

// WaitLeases returns once at least count leases were made.
func (f *Fleet) WaitLeases(ctx context.Context, count int) error {
	return f.waitCount(ctx, "leases", `SELECT count(*) FROM forge.leases`, count)
}

func (f *Fleet) waitCount(ctx context.Context, what, sql string, want int) error {
	have, err := f.watchCount(ctx, sql, func(n int) bool { return n >= want })
	switch {
	case err != nil && have < 0:
		return fmt.Errorf("%s could not be counted: %w", what, err)
	case err != nil:
		return fmt.Errorf("%d of %d %s: %w", have, want, what, err)
	}
	return nil
}

// watchCount asks for a count until it is enough, and returns the last one; -1 when none could be read.
func (f *Fleet) watchCount(ctx context.Context, sql string, enough func(int) bool) (last int, err error) {
	for last = -1; ; {
		var now int
		switch err := f.Query(ctx, sql, nil, &now); {
		case err == nil && enough(now):
			return now, nil
		case err == nil:
			last = now
		case ctx.Err() == nil:
			return last, err
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// WaitRun follows a run, asking any daemon that answers, until it is over.
func (f *Fleet) WaitRun(ctx context.Context, id string) (runner.Run, error) {
	var last error
	for {
		for _, n := range f.Nodes() {
			var doc runner.RunDocument
			if last = n.call(ctx, http.MethodGet, "/v1/runs/"+id, nil, &doc); last == nil {
				if doc.State != runner.RunRunning {
					return doc.Run, nil
				}
				break
			}
		}
		select {
		case <-ctx.Done():
			return runner.Run{}, fmt.Errorf("run %s is not over: %w (%v)", id, ctx.Err(), last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
