// What an attempt is given: its run's source and its needs' artifacts, fetched, verified and unpacked before the first step.

package runner

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/forgeyard/forgeyard/roles/artifact"
)

// archiveLimit bounds one fetched or stored archive, in bytes.
const archiveLimit = 4 << 30

// given is one archive that an attempt is given.
type given struct {
	what   string // for people
	digest string
}

func givenTo(o Offer) []given {
	var all []given
	if o.Source != "" {
		all = append(all, given{"its source", o.Source})
	}
	for _, in := range o.Inputs {
		all = append(all, given{fmt.Sprintf("the artifact %s of %s", in.Name, in.Job), in.Digest})
	}
	return all
}

// notNow is a failure that waiting may mend: the attempt gives its lease up when
// it has waited too long, for nothing of the job ran yet.
type notNow struct{ err error }

func (e *notNow) Error() string { return e.err.Error() }
func (e *notNow) Unwrap() error { return e.err }

// fetchAll fills the working directory. The error is a notNow when ctx ended
// while a daemon or the artifact store could not be reached. What all archives
// together unpack to is bounded here: nothing watches the disk before the steps,
// and a few stored bytes may unpack to many.
func (a *Agent) fetchAll(ctx context.Context, at *attempt, w workspace) error {
	left := a.cfg.Disk
	for _, g := range givenTo(at.offer) {
		n, err := a.fetch(ctx, at, w, g, left)
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// fetch returns how many bytes were unpacked, at most left.
func (a *Agent) fetch(ctx context.Context, at *attempt, w workspace, g given, left int64) (int64, error) {
	digest, err := artifact.ParseDigest(g.digest)
	if err != nil {
		return 0, fmt.Errorf("%s cannot be fetched: %w", g.what, err)
	}
	file := filepath.Join(w.path(stagePart), "archive")
	err = a.patiently(ctx, at, "waiting for "+g.what, func() error { return a.download(ctx, at.offer.Lease, digest, file) })
	if err != nil {
		return 0, fmt.Errorf("%s cannot be fetched: %w", g.what, err)
	}
	n, err := unpackInto(ctx, w, file, left)
	if err != nil {
		return 0, fmt.Errorf("%s cannot be unpacked: %w", g.what, err)
	}
	return n, nil
}

// unpackInto unpacks the archive beside the working directory and moves it in.
func unpackInto(ctx context.Context, w workspace, file string, left int64) (int64, error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	const fresh = stagePart + "/tree"
	most := artifact.Limits{Bytes: max(1, min(left, archiveLimit))} // 0 would be the default
	had, err := artifact.UnpackZstd(ctx, f, w.path(fresh), most)
	if err != nil {
		return 0, err
	}
	if err := w.merge(fresh, jobPart); err != nil {
		return 0, err
	}
	return had.Bytes, errors.Join(os.RemoveAll(w.path(fresh)), os.Remove(file))
}

// patiently repeats f until it succeeds, fails for good, or ctx ends. Meanwhile
// the attempt's heartbeats carry what it waits for and why.
func (a *Agent) patiently(ctx context.Context, at *attempt, what string, f func() error) error {
	defer at.life.wait("")
	at.life.wait(what)
	var last error
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		err := f()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		if final := (*finalError)(nil); errors.As(err, &final) {
			return err
		}
		if refused := (*Refused)(nil); errors.As(err, &refused) && !refused.Retry {
			return err
		}
		if ctx.Err() != nil {
			if last == nil {
				last = err
			}
			return &notNow{last}
		}
		at.life.wait(what + ": " + err.Error())
		a.log.Debug(what, "lease", at.offer.Lease, "err", err)
		_ = pause(ctx, wait)
	}
}

// finalError is a failure on this machine that repeating does not mend.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }

// idleBound is how long a transfer may stand still before it is begun anew; after
// the last byte of an output access.StoreTime more.
const idleBound = ackBound

// download writes a blob to a file and checks its digest.
func (a *Agent) download(ctx context.Context, lease string, digest artifact.Digest, file string) (err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return &finalError{err}
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, ready, err := a.openTransfer(ctx, Transfer{Fetch: &Fetch{Lease: lease, Digest: digest.String()}})
	if err != nil {
		return err
	}
	defer stream.done()
	if ready.Size > archiveLimit {
		return &finalError{fmt.Errorf("%d bytes are more than %d", ready.Size, int64(archiveLimit))}
	}
	idle := time.AfterFunc(idleBound, func() { cancel(errors.New("the daemon sends nothing")) })
	defer idle.Stop()
	hash := sha256.New()
	r := &ticking{r: io.LimitReader(stream.Reader(ctx), archiveLimit+1), tick: func() { idle.Reset(idleBound) }}
	n, err := io.Copy(onDisk{io.MultiWriter(f, hash)}, r)
	switch {
	case err != nil:
		return err
	case n > archiveLimit:
		return &finalError{fmt.Errorf("it has more than %d bytes", int64(archiveLimit))}
	case artifact.Digest(hash.Sum(nil)) != digest:
		return errors.New("what arrived does not have the promised digest")
	}
	return nil
}

// ticking calls tick whenever something was read.
type ticking struct {
	r    io.Reader
	tick func()
}

func (t *ticking) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if n > 0 {
		t.tick()
	}
	return n, err
}

// onDisk marks the errors of a write to this machine's disk as final.
type onDisk struct{ w io.Writer }

func (d onDisk) Write(p []byte) (int, error) {
	n, err := d.w.Write(p)
	if err != nil {
		err = &finalError{err}
	}
	return n, err
}
