// Retention: what ended long ago leaves the tables, in bounded batches and with pauses between.

package scheduler

import (
	"context"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
)

// Retention says how long rows are kept after they are of no use any more, and
// how they are removed. Zero values take the defaults.
type Retention struct {
	Runs      time.Duration // 30 d after the last job of a run ended: its jobs, leases, logs, artifacts and itself
	Logs      time.Duration // as Runs; what a finished run wrote, when that is to go earlier
	Artifacts time.Duration // as Runs; what a finished run kept, when that is to go earlier
	Dispatch  time.Duration // 1 h; orders that were delivered or void and whose lease has ended
	Outbox    time.Duration // 3 d; events
	Every     time.Duration // 1 min; between two passes
	Pause     time.Duration // 200 ms; between two batches of a pass
	Batch     int           // 1000; most rows of a table, but for the jobs of one run, in one transaction
}

func (r Retention) withDefaults() Retention {
	const day = 24 * time.Hour
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{
		{&r.Runs, 30 * day}, {&r.Dispatch, time.Hour}, {&r.Outbox, 3 * day}, {&r.Every, time.Minute}, {&r.Pause, 200 * time.Millisecond},
	} {
		if *d.v <= 0 {
			*d.v = d.d
		}
	}
	if r.Logs <= 0 || r.Logs > r.Runs {
		r.Logs = r.Runs
	}
	if r.Artifacts <= 0 || r.Artifacts > r.Runs {
		r.Artifacts = r.Runs
	}
	if r.Batch <= 0 {
		r.Batch = 1000
	}
	return r
}

// Pruned counts the rows that this process removed as the leader, since it started.
type Pruned struct {
	Runs      int64     `json:"runs"`
	Jobs      int64     `json:"jobs"`
	Leases    int64     `json:"leases"`
	Dispatch  int64     `json:"dispatch"`
	Outbox    int64     `json:"outbox"`
	LogChunks int64     `json:"log_chunks"`
	Artifacts int64     `json:"artifacts"`
	LastPass  time.Time `json:"last_pass"` // when a pass last found nothing more to remove; zero: never
}

func (s *Scheduler) prune(context.Context, cluster.RoleGuard) (time.Duration, error) {
	return s.cfg.Retention.Every, nil
}
