// What an attempt leaves: its declared outputs, packed and stored after the last step and before its completion.

package runner

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/roles/artifact"
)

// errNoOutput: a declared output is missing or cannot be kept, so the job failed.
type errNoOutput struct{ reason string }

func (e *errNoOutput) Error() string { return e.reason }

// storeAll stores the outputs in their order. What the job is to blame for comes as errNoOutput.
func (a *Agent) storeAll(ctx context.Context, at *attempt, w workspace) error {
	for _, out := range at.offer.Outputs {
		if err := a.storeOne(ctx, at, w, out); err != nil {
			return err
		}
	}
	return nil
}

func (a *Agent) storeOne(ctx context.Context, at *attempt, w workspace, out Output) error {
	file := filepath.Join(w.path(stagePart), "output")
	p, err := packOutput(ctx, w.path(jobPart), out, file)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("storing the output %s", out.Name)
	err = a.patiently(ctx, at, what, func() error { return a.upload(ctx, at.offer.Lease, out, file, p) })
	if err != nil {
		return fmt.Errorf("the output %s cannot be stored: %w", out.Name, err)
	}
	// The file stays: the next output takes its place, and removing the last one,
	// which may take long, is no part of the work.
	return nil
}

// packed is an archive in a file.
type packed struct {
	size   int64
	digest artifact.Digest
}

func packOutput(ctx context.Context, dir string, out Output, file string) (p packed, err error) {
	if err := exists(dir, out); err != nil {
		return p, err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	hash := sha256.New()
	count := &counter{w: io.MultiWriter(f, hash)}
	if _, err := artifact.PackZstd(ctx, dir, []string{filepath.ToSlash(filepath.Clean(out.Path))}, artifact.Limits{}, count); err != nil {
		if ctx.Err() != nil {
			return p, context.Cause(ctx)
		}
		return p, &errNoOutput{fmt.Sprintf("the output %s cannot be packed: %v", out.Name, err)}
	}
	return packed{size: count.n, digest: artifact.Digest(hash.Sum(nil))}, nil
}

// exists looks without following a link out of the working directory.
func exists(dir string, out Output) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return &errNoOutput{fmt.Sprintf("the working directory is gone: %v", err)}
	}
	defer root.Close()
	_, err = root.Lstat(filepath.Clean(out.Path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &errNoOutput{fmt.Sprintf("the declared output %s is missing: nothing is at %q", out.Name, out.Path)}
	case err != nil:
		return &errNoOutput{fmt.Sprintf("the declared output %s cannot be kept: %v", out.Name, err)}
	}
	return nil
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// upload sends one packed output.
func (a *Agent) upload(ctx context.Context, lease string, out Output, file string, p packed) error {
	f, err := os.Open(file)
	if err != nil {
		return &finalError{err}
	}
	defer f.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, _, err := a.openTransfer(ctx, Transfer{Store: &Store{Lease: lease, Name: out.Name, Path: out.Path, Size: p.size, Digest: p.digest.String()}})
	if err != nil {
		return err
	}
	defer stream.done()
	idle := time.AfterFunc(idleBound, func() { cancel(errors.New("the daemon takes nothing")) })
	defer idle.Stop()
	sent, err := stream.SendAll(ctx, &ticking{r: f, tick: func() { idle.Reset(idleBound) }})
	if err == nil {
		err = stream.Send(ctx, Frame{End: &End{Size: p.size, Digest: p.digest.String()}})
	}
	idle.Reset(idleBound + access.StoreTime(sent))
	// Also after a failed write: a daemon that refuses amid the data says why before it closes.
	answer, heard := stream.Receive(ctx)
	switch refused := (*Refused)(nil); {
	case errors.As(heard, &refused):
		return heard
	case err != nil:
		return err
	case heard != nil:
		return heard
	case answer.Done == nil:
		return errors.New("the daemon does not say that it is stored")
	}
	return nil
}
