// The logs of a run as they come: one tail per job, from attempt to attempt, until all jobs have ended.

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/roles/runner"
)

const (
	logQuiet = 10 * time.Second // a followed log that is silent so long is asked for at the next daemon
	maxTails = 32               // logs that are followed at a time
	// lostLog is how long the log of an attempt is waited for once a later attempt exists.
	lostLog = 3 * time.Second
)

// attemptLog reads one attempt's log from where it has come to: over daemons
// that end, no byte is lost and none comes twice.
type attemptLog struct {
	run, job string
	attempt  int
	offset   int64
	follow   bool
	to       io.Writer
}

func (l *attemptLog) request() (string, url.Values, http.Header) {
	q := url.Values{"attempt": {strconv.Itoa(l.attempt)}, "offset": {strconv.FormatInt(l.offset, 10)}}
	if l.follow {
		q.Set("follow", "true")
	}
	return fmt.Sprintf("/v1/runs/%s/jobs/%s/logs", url.PathEscape(l.run), url.PathEscape(l.job)), q, nil
}

func (l *attemptLog) read(resp *http.Response, r io.Reader) error {
	at := resp.Header.Get(runner.LogOffsetHeader)
	switch {
	case at == "": // a daemon that is stopping answers with nothing
		return client.Broken("the answer has no log")
	case at != strconv.FormatInt(l.offset, 10):
		return fmt.Errorf("the log of %s was asked for from byte %d and came from byte %s", l.job, l.offset, clean(at))
	}
	n, err := io.Copy(l.to, r)
	l.offset += n
	return err
}

// copyLog writes one attempt's log to its end, or as far as it has come.
func (a *app) copyLog(ctx context.Context, c *client.Client, l *attemptLog) error {
	return c.Follow(ctx, client.Stream{Request: l.request, Read: l.read, Quiet: logQuiet, Patience: pollPatience})
}

// follower shows the logs of a run's jobs until these have ended.
type follower struct {
	app     *app
	client  *client.Client
	run     string
	job     string // "" for every job
	newest  bool   // begin with the newest attempt of each job, not the first
	strict  bool   // a log that cannot be read ends everything; else the run is followed without it
	printer *logPrinter
	note    func(format string, args ...any) // for people, on standard error
	watch   func(ctx context.Context, d runner.RunDocument)

	tails   map[string]*tail
	running int
	ended   chan *tail
}

// tail is the following of one job.
type tail struct {
	job     string
	attempt int // that is shown, or was
	busy    bool
	unread  bool               // its log, or a part of it, could not be read
	later   time.Time          // when a later attempt was first seen
	drain   context.CancelFunc // go on to the end of what is there, and wait no longer
	err     error
}

// toEnd follows from the document d and returns the last one.
func (f *follower) toEnd(ctx context.Context, d runner.RunDocument) (runner.RunDocument, error) {
	ctx, cancel := context.WithCancel(ctx)
	f.tails, f.ended = map[string]*tail{}, make(chan *tail)
	defer func() {
		cancel()
		for ; f.running > 0; f.running-- {
			<-f.ended
		}
	}()
	pace := newPace()
	for {
		f.advance(ctx, d)
		if f.watch != nil {
			f.watch(ctx, d)
		}
		if f.running == 0 && f.over(d) {
			return d, f.missed(d)
		}
		next, err := f.await(ctx, pace)
		if err != nil {
			return d, err
		}
		if next != nil {
			d = *next
		}
	}
}

// await waits for a tail's end or for a new look at the run.
func (f *follower) await(ctx context.Context, p *pace) (*runner.RunDocument, error) {
	t := time.NewTimer(p.next)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case ended := <-f.ended:
		f.running--
		ended.busy = false
		var failed *client.Error
		if f.strict || !errors.As(ended.err, &failed) {
			return nil, ended.err
		}
		ended.unread = true
		f.note("the log of %s cannot be shown: %s", ended.job, failed.Problem.Message)
		return nil, nil
	case <-t.C:
	}
	var d runner.RunDocument
	ok, err := p.look(ctx, func() (err error) { d, err = f.app.run(ctx, f.run); return err })
	if !ok || err != nil {
		return nil, err
	}
	return &d, nil
}

func (f *follower) wanted(d runner.RunDocument) []runner.Job {
	if f.job == "" {
		return d.Jobs
	}
	return slices.DeleteFunc(slices.Clone(d.Jobs), func(j runner.Job) bool { return j.Name != f.job })
}

// over reports whether every wanted job has ended and all its attempts were shown.
func (f *follower) over(d runner.RunDocument) bool {
	wanted := f.wanted(d)
	if (f.job == "" || len(wanted) == 0) && d.State == runner.RunRunning {
		return false // also when a daemon that could not read what it had just stored answered without jobs
	}
	for _, j := range wanted {
		t := f.tails[j.Name]
		if !j.State.Ended() || j.Attempt > 0 && (t == nil || t.attempt < j.Attempt) {
			return false
		}
	}
	return true
}

// missed gives the last output of the jobs whose logs could not be read, as their agents reported it.
func (f *follower) missed(d runner.RunDocument) error {
	for _, j := range f.wanted(d) {
		if t := f.tails[j.Name]; t == nil || !t.unread || len(j.Leases) == 0 {
			continue
		}
		out := f.printer.log(j.Name, j.Attempt)
		_, err := io.WriteString(out, j.Leases[len(j.Leases)-1].OutputTail)
		if err := errors.Join(err, out.Close()); err != nil {
			return err
		}
	}
	return nil
}

// advance begins what can be shown, and ends the wait for an attempt whose job has a later one.
func (f *follower) advance(ctx context.Context, d runner.RunDocument) {
	for _, j := range f.wanted(d) {
		t := f.tails[j.Name]
		if t == nil {
			t = &tail{job: j.Name}
			if f.newest {
				t.attempt = max(0, j.Attempt-1)
			}
			f.tails[j.Name] = t
		}
		switch {
		case t.busy && j.Attempt > t.attempt && t.later.IsZero():
			t.later = time.Now()
		case t.busy && j.Attempt > t.attempt && time.Since(t.later) > lostLog:
			t.drain()
		case !t.busy && j.Attempt > t.attempt && f.running < maxTails:
			f.begin(ctx, t)
		}
	}
}

// begin shows the next attempt of a job. toEnd waits for the goroutine.
func (f *follower) begin(ctx context.Context, t *tail) {
	t.attempt++
	waiting, drain := context.WithCancel(ctx)
	t.busy, t.later, t.drain = true, time.Time{}, drain
	f.running++
	go func() {
		defer drain()
		t.err = f.show(ctx, waiting, t.job, t.attempt)
		f.ended <- t
	}()
}

// show follows one attempt's log while waiting lasts, and then reads what is left of it.
func (f *follower) show(ctx, waiting context.Context, job string, attempt int) error {
	if attempt > 1 {
		f.note("%s: attempt %d", job, attempt)
	}
	out := f.printer.log(job, attempt)
	l := &attemptLog{run: f.run, job: job, attempt: attempt, follow: true, to: out}
	err := f.app.copyLog(waiting, f.client, l)
	if waiting.Err() != nil && ctx.Err() == nil {
		l.follow = false
		err = f.app.copyLog(ctx, f.client, l)
		f.note("%s: attempt %d was lost, and the end of its log may be", job, attempt)
	}
	return errors.Join(err, out.Close())
}
