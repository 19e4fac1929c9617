// A sweep: gathers, checks, looks twice, and keeps the newest report.

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
)

// Coordination is what a Reconciler needs of a cluster.Backend.
type Coordination interface {
	View() cluster.View
	Leadership() (cluster.Leadership, bool)
	LinearizableView(ctx context.Context) (cluster.View, error)
}

// Database reads the Facts; its SQL lives in roles/store.
type Database interface {
	CoordinationFacts(ctx context.Context) (Facts, error)
}

// errNoDatabase is why the database checks are skipped without a Database.
var errNoDatabase = errors.New("none is configured")

// Config is what a Reconciler is made of.
type Config struct {
	Coordination Coordination
	Database     Database     // nil: only the checks on the view run
	Logger       *slog.Logger // nil: nothing is logged
	Now          func() time.Time
}

// Reconciler sweeps for one process. It is safe for concurrent use.
type Reconciler struct {
	cfg  Config
	turn sync.Mutex // one sweep at a time
	last atomic.Pointer[Report]
}

// New makes a Reconciler.
func New(cfg Config) *Reconciler {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Reconciler{cfg: cfg}
}

// Last is the newest report; false before the first sweep.
func (r *Reconciler) Last() (Report, bool) {
	if p := r.last.Load(); p != nil {
		return *p, true
	}
	return Report{}, false
}

// Sweep runs every check once under this node's leadership. NotLeader when it
// leads no more. A database that does not answer skips its checks and fails nothing.
func (r *Reconciler) Sweep(ctx context.Context) (Report, error) {
	r.turn.Lock()
	defer r.turn.Unlock()
	leadership, leads := r.cfg.Coordination.Leadership()
	if !leads {
		return Report{}, cluster.ErrNotLeader
	}
	facts, unread := r.facts(ctx)
	check := func(v cluster.View) []Finding {
		found := checkView(v.View)
		if unread == nil {
			found = append(found, checkDatabase(v.View, facts)...)
		}
		return found
	}
	found := check(r.cfg.Coordination.View())
	if len(found) > 0 {
		// The cached view may be older than the facts; the proof costs a round, so only now.
		v, err := r.cfg.Coordination.LinearizableView(ctx)
		if err != nil {
			return Report{}, fmt.Errorf("prove the view that the database disagrees with: %w", err)
		}
		found = check(v)
	}
	report := Report{At: r.cfg.Now(), Term: leadership.Term, Findings: append([]Finding{}, found...)}
	if unread != nil {
		report.Skipped = unread.Error()
	}
	r.keep(&report)
	return report, nil
}

func (r *Reconciler) facts(ctx context.Context) (Facts, error) {
	if r.cfg.Database == nil {
		return Facts{}, errNoDatabase
	}
	return r.cfg.Database.CoordinationFacts(ctx)
}

// keep dates the findings by the sweep before, tells what is new for sure or
// gone, and makes the report the newest.
func (r *Reconciler) keep(report *Report) {
	before, _ := r.Last()
	same := func(list []Finding, f Finding) int {
		return slices.IndexFunc(list, func(x Finding) bool { return x.Check == f.Check && x.Subject == f.Subject && x.Code == f.Code })
	}
	for i := range report.Findings {
		f := &report.Findings[i]
		f.Since = report.At
		if j := same(before.Findings, *f); j >= 0 {
			f.Since, f.Confirmed = before.Findings[j].Since, true
			if !before.Findings[j].Confirmed {
				r.cfg.Logger.Warn("coordination state disagrees", "check", f.Check, "subject", f.Subject, "code", f.Code, "finding", f.Message)
			}
		}
	}
	for _, f := range before.Findings {
		if f.Confirmed && same(report.Findings, f) < 0 && (report.Skipped == "" || f.Check == RoleOwner || f.Check == Exclusive) {
			r.cfg.Logger.Info("coordination state agrees again", "check", f.Check, "subject", f.Subject, "code", f.Code)
		}
	}
	r.last.Store(report)
}
