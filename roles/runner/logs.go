// HTTP handler of logs: an attempt's output from an offset, and as it grows.

package runner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// Headers of a log's answer.
const (
	LogOffsetHeader  = "Forgeyard-Log-Offset"  // of the first byte that follows, in the attempt's log
	LogAttemptHeader = "Forgeyard-Log-Attempt" // whose log it is
)

const (
	logPoll  = time.Second            // a followed log is looked at so often without being woken,
	logPace  = 100 * time.Millisecond // and no more often than this when it is
	logGrace = 30 * time.Second       // how long after its lease ended the rest of a log is waited for
)

// place is an attempt whose log is read.
type logPlace struct {
	lease   string // "" while the attempt has not begun
	attempt int
	job     JobState
	ended   *time.Duration // since the attempt's end
}

// With attempt 0 the newest one is meant.
const logPlaceSQL = `
SELECT j.state, coalesce(l.id::text, ''), coalesce(l.attempt, 0), coordination.clock() - l.ended_at
  FROM forge.jobs j LEFT JOIN LATERAL (
    SELECT l.id, l.attempt, l.ended_at FROM forge.leases l WHERE l.job_id = j.id AND ($3 = 0 OR l.attempt = $3) ORDER BY l.attempt DESC LIMIT 1) l ON true
 WHERE j.run_id = $1 AND j.name = $2`

func (a *API) logPlace(ctx context.Context, run, job string, attempt int) (p logPlace, err error) {
	err = a.cfg.Store.Batch(ctx, func(b *pgx.Batch) {
		b.Queue(logPlaceSQL, run, job, attempt).QueryRow(func(row pgx.Row) error { return row.Scan(&p.job, &p.lease, &p.attempt, &p.ended) })
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return p, noJob(run, "run %s has no job %q, or there is no such run", run, job)
	}
	if err != nil {
		return p, fmt.Errorf("read a log of run %s: %w", run, err)
	}
	return p, nil
}

// finished reports whether nothing more can come.
func (p logPlace) finished() bool {
	if p.lease == "" {
		return p.job.Ended()
	}
	return p.ended != nil && *p.ended > logGrace
}

// Ended reports whether a job in this state stays in it.
func (s JobState) Ended() bool {
	switch s {
	case JobSucceeded, JobFailed, JobCancelled, JobSkipped:
		return true
	}
	return false
}

// logs answers with the bytes of an attempt's log from an offset. With
// follow=true the answer goes on until the log is whole: the attempt has ended
// and all of its output came, or did not come for logGrace. An answer that
// cannot go on breaks off; the client continues at the offset it has come to.
func (a *API) logs(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	attempt, err := number(q.Get("attempt"), "attempt", MaxAttemptLimit)
	if err != nil {
		return err
	}
	offset, err := number(q.Get("offset"), "offset", 1<<62)
	if err != nil {
		return err
	}
	follow := q.Get("follow") == "true"
	run, job := r.PathValue("id"), r.PathValue("job")
	if _, err := ulid.ParseStrict(run); err != nil {
		return access.ErrNoRun.Because("no run %.64q", run)
	}
	if name("job", job) != nil {
		return noJob(run, "run %s has no job %.140q", run, job)
	}
	if a.cfg.Logs == nil {
		return ErrNoArtifactStore
	}
	grown := a.grown.wait()
	p, err := a.logPlace(r.Context(), run, job, int(attempt))
	if err != nil {
		return err
	}
	for p.lease == "" && follow && !p.finished() { // the attempt is still to begin
		if err := a.await(r.Context(), grown); err != nil {
			return &cutError{err} // the client is gone, or the daemon stops: no answer, so that it asks another
		}
		grown = a.grown.wait()
		if p, err = a.logPlace(r.Context(), run, job, int(attempt)); err != nil {
			return err
		}
	}
	if p.lease == "" {
		return noJob(run, "job %q of run %s has no attempt %d", job, run, max(1, attempt))
	}
	return a.stream(w, r, run, job, p, offset, follow)
}

func (a *API) stream(w http.ResponseWriter, r *http.Request, run, job string, p logPlace, offset int64, follow bool) error {
	ctx, out := r.Context(), http.NewResponseController(w)
	begun := false
	begin := func() {
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set(LogOffsetHeader, strconv.FormatInt(offset, 10))
		h.Set(LogAttemptHeader, strconv.Itoa(p.attempt))
		w.WriteHeader(http.StatusOK)
		begun = true
	}
	next := offset
	for {
		grown := a.grown.wait()
		tail, err := a.cfg.Logs.Read(ctx, p.lease, next, func(_ int64, raw []byte) error {
			if !begun {
				begin()
			}
			_, err := w.Write(raw)
			return err
		})
		next = max(next, tail.End)
		switch {
		case err != nil && !begun:
			return err
		case err != nil:
			return &cutError{err}
		case !begun:
			begin() // an empty log is an answer too
		}
		if err := out.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return &cutError{err}
		}
		if tail.Complete || !follow || p.finished() {
			return nil
		}
		if err := a.await(ctx, grown); err != nil {
			return &cutError{err}
		}
		if p, err = a.logPlace(ctx, run, job, p.attempt); err != nil {
			return &cutError{err}
		}
	}
}

// await waits until some log has grown, though not less than logPace, or for logPoll.
func (a *API) await(ctx context.Context, grown <-chan struct{}) error {
	if err := pause(ctx, logPace); err != nil {
		return err
	}
	t := time.NewTimer(logPoll)
	defer t.Stop()
	select {
	case <-grown:
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func number(s, what string, most int64) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, access.ErrBadRequest.Because("%s: %.24q is not a number within 0 and %d", what, s, most)
	}
	return n, nil
}

// broadcast wakes everyone who waits.
type broadcast struct {
	mu   sync.Mutex
	next chan struct{}
}

func newBroadcast() *broadcast { return &broadcast{next: make(chan struct{})} }

// wait returns a channel that the next wake closes.
func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next
}

func (b *broadcast) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.next)
	b.next = make(chan struct{})
}
