// Following a run to its end: its progress, why it waits, and what its end means for the exit code.

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/scheduler"
)

const (
	pollInterval = 300 * time.Millisecond
	// pollPatience is how long a command that follows goes on when no daemon answers: longer than a failover.
	pollPatience = time.Minute
	// silentFor is how long a run may stand still before people are told why.
	silentFor = 2 * time.Second
)

// pace is the rhythm of looking at a run: slower when an answer takes long, and patient through a failover.
type pace struct {
	next     time.Duration // until the next look
	answered time.Time
}

func newPace() *pace { return &pace{next: pollInterval, answered: time.Now()} }

// look reads once. A read that failed is not ok, and an error only when waiting will not help.
func (p *pace) look(ctx context.Context, read func() error) (ok bool, err error) {
	began := time.Now()
	err = read()
	switch {
	case err == nil:
		p.answered, p.next = time.Now(), max(pollInterval, 5*time.Since(began))
		return true, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case !worthWaiting(err) || time.Since(p.answered) > pollPatience:
		return false, err
	}
	return false, nil
}

// worthWaiting tells an outage, which ends, from an answer, which does not change.
func worthWaiting(err error) bool {
	var failed *client.Error
	return errors.As(err, &failed) && (failed.Status == 0 || failed.Status >= 500)
}

// progress tells on standard error how a run goes, each thing once.
type progress struct {
	app   *app
	quiet bool // no counts: its log is shown
	said  string
	since time.Time // when anything last moved
	asked time.Time // when the fleet was last asked why
	why   string
}

// note writes a line for people. A failure to write it harms nothing.
func (a *app) note(format string, args ...any) {
	text := clean(fmt.Sprintf(format, args...))
	_, _ = fmt.Fprintln(a.io.Err, wrap(text, a.io.ErrWidth, len(label.FindString(text))))
}

// tell says what changed, and after a while of nothing why nothing does.
func (p *progress) tell(ctx context.Context, d runner.RunDocument) {
	c := d.Counts
	now := fmt.Sprintf("run %s: %d queued, %d running, %d done", d.ID, c.Blocked+c.Queued+c.Backoff, c.Leased, c.Total()-c.Open())
	if now != p.said {
		p.said, p.since, p.why = now, time.Now(), ""
		if !p.quiet {
			p.app.note("%s", now)
		}
		return
	}
	if c.Leased > 0 || c.Open() == 0 || time.Since(p.since) < silentFor || time.Since(p.asked) < 5*time.Second {
		return
	}
	p.asked = time.Now()
	if why := p.app.waitsFor(ctx, d.ID); why != "" && why != p.why {
		p.why = why
		p.app.note("waiting: %s", why)
	}
}

// waitsFor is the first reason of the first job that waits; "" when it is not known.
func (a *app) waitsFor(ctx context.Context, run string) string {
	var w scheduler.WhyDocument
	if err := a.get(ctx, whyPath(run), &w); err != nil {
		return ""
	}
	for _, j := range w.Jobs {
		for _, r := range j.Reasons {
			return j.Job + ": " + r.Message
		}
	}
	return ""
}

// wait follows a run without its logs and prints it at its end. Ctrl-C leaves the run running.
func (a *app) wait(ctx context.Context, d runner.RunDocument) error {
	tell, p := &progress{app: a}, newPace()
	for d.State == runner.RunRunning || d.State == "" {
		tell.tell(ctx, d)
		t := time.NewTimer(p.next)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		var next runner.RunDocument
		ok, err := p.look(ctx, func() (err error) { next, err = a.run(ctx, d.ID); return err })
		switch {
		case ctx.Err() != nil:
			a.note("still running: forgeyard run show %s", d.ID)
			return ctx.Err()
		case err != nil:
			return err
		case ok:
			d = next
		}
	}
	if err := a.print(runResult(d, "")); err != nil {
		return err
	}
	return endOf(d)
}

// endOf is nil for a run that succeeded.
func endOf(d runner.RunDocument) error {
	if d.State == runner.RunSucceeded {
		return nil
	}
	return &runFailed{message: ended(d)}
}

// ended is a run's end in one sentence: for how long it went, and what its jobs came to.
func ended(d runner.RunDocument) string {
	text := fmt.Sprintf("run %s %s", d.ID, d.State)
	if d.State == runner.RunCancelled {
		text = fmt.Sprintf("run %s was %s", d.ID, d.State)
	}
	var last time.Time
	for _, j := range d.Jobs {
		if j.FinishedAt != nil && j.FinishedAt.After(last) {
			last = *j.FinishedAt
		}
	}
	if last.After(d.SubmittedAt) {
		text += " in " + span(last.Sub(d.SubmittedAt).Milliseconds())
	}
	if c := d.Counts; d.State != runner.RunSucceeded {
		text += fmt.Sprintf(": %d of %d jobs did not succeed", c.Total()-c.Succeeded, c.Total())
	}
	return text
}

// followLogs shows the logs of a whole run as they come, then how it ended, on
// standard error; with documents, on standard output.
func (a *app) followLogs(ctx context.Context, d runner.RunDocument, jobs []string) error {
	c, err := a.client(ctx)
	if err != nil {
		return err
	}
	tell := &progress{app: a, quiet: true}
	f := &follower{app: a, client: c, run: d.ID, printer: a.newLogPrinter(d.ID, jobs), note: a.note, watch: tell.tell}
	d, err = f.toEnd(ctx, d)
	if err != nil {
		if ctx.Err() != nil {
			a.note("still running: forgeyard run logs -f %s", d.ID)
		}
		return err
	}
	if a.structured() {
		err = a.document(d)
	} else {
		p := a.painter()
		p.colour, p.width = false, a.io.ErrWidth
		p.run(d.Run)
		_, err = fmt.Fprint(a.io.Err, strings.TrimRight(p.String(), "\n")+"\n")
	}
	if err != nil {
		return err
	}
	return endOf(d)
}
