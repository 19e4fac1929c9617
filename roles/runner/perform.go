// The work of one attempt, in order: directories, inputs, steps, outputs; and what its end means.

package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/forgeyard/forgeyard/roles/store"
)

// result is how far an attempt came and how it ended there.
type result struct {
	Exit
	began    bool  // a step may have run
	waited   error // it ended while it waited for something outside of this machine
	unkept   string
	cause    error // why it was made to end, of what came before the end of its work; nil: nothing did
	logBytes int64
}

// ended gives a result the cause that its work ended with. Removing a large tree
// on a slow disk takes long: what comes meanwhile, the time limit or the agent's
// end, changes nothing about work that is done.
func ended(ctx context.Context, res result) result {
	res.cause = context.Cause(ctx)
	return res
}

// perform does the work of an attempt. When it returns nothing of it runs, its
// directories are gone, and its log has its length, though it may not be stored yet.
func (a *Agent) perform(ctx context.Context, at *attempt) (res result) {
	log, err := newSpool(a.cfg.Dir, at.offer.Lease, at.offer.LogLimit)
	if err != nil {
		return ended(ctx, result{Exit: Exit{Err: err}})
	}
	a.keepLog(at.offer.Lease, log)
	defer func() { res.logBytes = log.end() }()
	w, err := newWorkspace(a.cfg.Dir, at.offer.Lease)
	defer func() { a.warn("a working directory could not be removed", a.clear(w)) }()
	if err != nil {
		return ended(ctx, result{Exit: Exit{Err: err}})
	}
	return ended(ctx, a.work(ctx, at, w, io.MultiWriter(at.tail, log)))
}

// work fetches what the attempt is given, runs its steps and stores its outputs.
func (a *Agent) work(ctx context.Context, at *attempt, w workspace, out io.Writer) (res result) {
	if err := a.fetchAll(ctx, at, w); err != nil {
		_, _ = fmt.Fprintf(out, "== %s\n", err)
		return unfetched(err)
	}
	res = result{began: true, Exit: a.cfg.Executor.Run(ctx, a.taskOf(at, w), out)}
	if res.Err != nil || res.Limit != "" || res.Late || res.Code == nil || *res.Code != 0 || ctx.Err() != nil {
		return res
	}
	err := a.storeAll(ctx, at, w)
	if err != nil {
		_, _ = fmt.Fprintf(out, "== %s\n", err)
	}
	var blamed *errNoOutput
	var later *notNow
	switch {
	case errors.As(err, &blamed):
		res.unkept = blamed.reason
	case errors.As(err, &later):
		res.waited = err
	case err != nil:
		res.Err = err
	}
	return res
}

func unfetched(err error) result {
	if later := (*notNow)(nil); errors.As(err, &later) {
		return result{waited: err}
	}
	return result{Exit: Exit{Err: err}}
}

func (a *Agent) taskOf(at *attempt, w workspace) Task {
	o := at.offer
	return Task{
		Lease: o.Lease, Run: o.Run, Job: o.Job, Attempt: o.Attempt, Steps: o.Steps, Env: o.Env,
		Dir: w.path(jobPart), Root: w.root, Home: w.path(homePart), Temp: w.path(tempPart),
		Guard: filepath.Join(a.cfg.Dir, guardFile), Life: at.life,
	}
}

// reportOf turns how an attempt ended, and the cause that made it end, into what its agent reports.
//
//	cause                 report
//	none                  the exit itself: succeeded, failed, error
//	time limit            Complete(timeout); while it waited for its inputs: Release, for an output: Complete(error)
//	cancelled             Complete(cancelled)
//	deadline, stopping,   Release: the attempt has no result, the job is queued again
//	dropped
//
// The deadline is kept twice, by the agent and by the task's supervisor: the one
// that is first makes the cause, the other finds the task dead.
func reportOf(lease string, x result, took time.Duration) Message {
	cause := x.cause
	release := func(reason string) Message {
		return Message{Release: &Release{Lease: lease, Reason: store.Text(reason, MaxReason), Started: x.began}}
	}
	c := &Complete{Lease: lease, ExitCode: x.Code, Duration: took, LogBytes: x.logBytes}
	switch {
	case errors.Is(cause, errCancelled):
		c.Outcome, c.Reason = Cancelled, errCancelled.Error()
	case cause != nil && !errors.Is(cause, errTimeout):
		return release(cause.Error())
	case cause == nil && x.Late:
		return release(errDeadline.Error())
	case x.waited != nil && !x.began:
		return release(x.waited.Error())
	case x.waited != nil:
		c.Outcome, c.Reason = Errored, x.waited.Error()
	case cause != nil:
		c.Outcome, c.Reason = TimedOut, "killed at its time limit"
	case x.Limit != "":
		c.Outcome, c.Reason = Failed, x.Limit
	case x.Err != nil:
		c.Outcome, c.Reason = Errored, x.Err.Error()
	case x.unkept != "":
		c.Outcome, c.Reason = Failed, x.unkept
	case x.Signal != "":
		c.Outcome, c.Reason = Failed, "ended by signal: "+x.Signal
	case x.Code == nil:
		c.Outcome, c.Reason = Errored, "the executor returned no exit status"
	case *x.Code != 0:
		c.Outcome, c.Reason = Failed, fmt.Sprintf("exit status %d", *x.Code)
	default:
		c.Outcome = Succeeded
	}
	if x.Step != "" && (c.Outcome == Failed || c.Outcome == TimedOut || c.Outcome == Errored) && x.unkept == "" && x.waited == nil {
		c.Reason = fmt.Sprintf("step %s: %s", x.Step, c.Reason)
	}
	c.Reason = store.Text(c.Reason, MaxReason)
	return Message{Complete: c}
}
