// Shipping logs: from the agent's spools to whichever daemon it is linked to, resumed where the stored log ends.

package runner

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// logEvery is how long output may wait for more of it before it is sent.
	logEvery = 500 * time.Millisecond
	// logLinger is how long a stream without anything to send stays open.
	logLinger = 5 * time.Second
	// logKeep is how long the rest of a log is offered after its attempt has ended, or its agent has started again.
	logKeep = 10 * time.Minute
	// ackBound is how long a daemon may take to store one chunk.
	ackBound = 30 * time.Second
	// maxStreams bounds the transfer streams of one agent, below what a daemon lets one peer open.
	maxStreams = 64

	retryFirst = 200 * time.Millisecond
	retryMost  = 5 * time.Second
)

// ship brings a log to the daemons until all of it is stored, a daemon refuses
// it for good, logKeep is over, or the agent ends. Then the spool is removed,
// except in the last case: the agent's next process goes on with it.
func (a *Agent) ship(lease string, s *spool) {
	ctx, cancel := context.WithCancel(a.transfers)
	defer cancel()
	var bound *time.Timer
	wait := retryFirst
	for ctx.Err() == nil {
		size, ended := s.state()
		if ended && bound == nil {
			bound = time.AfterFunc(logKeep, cancel)
			defer bound.Stop()
		}
		if size == 0 && !ended {
			a.grown(ctx, s)
			continue
		}
		progress, err := a.shipOnce(ctx, lease, s)
		var refused *Refused
		switch {
		case err == nil && progress == logStored, errors.As(err, &refused) && !refused.Retry:
			if err != nil {
				a.log.Warn("a log was refused; its rest is dropped", "lease", lease, "err", err)
			}
			a.warn("a stored log could not be removed", s.remove())
			return
		case err == nil: // quiet
			a.grown(ctx, s)
			continue
		case progress == logMoved:
			wait = retryFirst
		}
		a.log.Debug("a log stream ended early", "lease", lease, "err", err)
		_ = pause(ctx, wait)
		wait = min(2*wait, retryMost)
	}
	if a.transfers.Err() != nil {
		a.warn("a log file could not be closed", s.close())
		return
	}
	a.log.Warn("a log could not be stored in time; its rest is dropped", "lease", lease)
	a.warn("a dropped log could not be removed", s.remove())
}

// grown waits until the spool has more, or has ended.
func (a *Agent) grown(ctx context.Context, s *spool) {
	select {
	case <-s.grew:
	case <-ctx.Done():
	}
}

// shipped is how far one stream came.
type shipped uint8

const (
	logStuck  shipped = iota // nowhere
	logMoved                 // something was stored
	logStored                // all of it, and the log has ended
)

// shipOnce sends what there is on one stream. It returns nil also when nothing
// more came for a while.
func (a *Agent) shipOnce(ctx context.Context, lease string, s *spool) (shipped, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, ready, err := a.openTransfer(ctx, Transfer{Log: &Log{Lease: lease}})
	if err != nil {
		return logStuck, err
	}
	defer stream.done()
	l := &logStream{TransferStream: stream.TransferStream, spool: s, sent: ready.Offset, acked: ready.Offset, buf: make([]byte, MaxData)}
	for {
		size, ended := s.state()
		switch {
		case l.acked > size:
			return l.moved(), &Refused{Reason: fmt.Sprintf("%d bytes of it are stored, which is more than there are", l.acked)}
		case l.flying < LogWindow && (size-l.sent >= MaxData || ended && size > l.sent || l.sent < size && l.due()):
			err = l.chunk(ctx, min(size-l.sent, MaxData))
		case l.flying > 0:
			err = l.ack(ctx)
		case ended:
			if err := l.finish(ctx, size); err != nil {
				return l.moved(), err
			}
			return logStored, nil
		case !l.more(ctx):
			return l.moved(), context.Cause(ctx)
		}
		if err != nil {
			return l.moved(), err
		}
	}
}

// logStream is one stream of one log.
type logStream struct {
	TransferStream
	spool       *spool
	buf         []byte
	sent, acked int64
	flying      int // chunks sent and not acknowledged
	stored      bool
	first       time.Time // when what is unsent was first seen
}

func (l *logStream) moved() shipped {
	if l.stored {
		return logMoved
	}
	return logStuck
}

// due tells whether output that is no full chunk has waited long enough.
func (l *logStream) due() bool {
	if l.first.IsZero() {
		l.first = time.Now()
	}
	return time.Since(l.first) >= logEvery
}

func (l *logStream) chunk(ctx context.Context, n int64) error {
	p := l.buf[:n]
	if err := l.spool.read(p, l.sent); err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	if err := l.bounded(ctx, func(ctx context.Context) error {
		return l.Send(ctx, Frame{Chunk: &Chunk{Offset: l.sent, Data: p}})
	}); err != nil {
		return err
	}
	l.sent += n
	l.flying++
	l.first = time.Time{}
	return nil
}

func (l *logStream) ack(ctx context.Context) error {
	return l.bounded(ctx, func(ctx context.Context) error {
		f, err := l.Receive(ctx)
		if err != nil {
			return err
		}
		if f.Ack == nil || f.Ack.Offset <= l.acked || f.Ack.Offset > l.sent {
			return errors.New("the daemon acknowledges what was not sent")
		}
		l.acked = f.Ack.Offset
		l.flying--
		l.stored = true
		return nil
	})
}

// finish makes the stored log final.
func (l *logStream) finish(ctx context.Context, size int64) error {
	return l.bounded(ctx, func(ctx context.Context) error {
		if err := l.Send(ctx, Frame{End: &End{Size: size}}); err != nil {
			return err
		}
		f, err := l.Receive(ctx)
		if err == nil && f.Done == nil {
			err = errors.New("the daemon does not say that the log is final")
		}
		return err
	})
}

func (l *logStream) bounded(ctx context.Context, f func(context.Context) error) error {
	ctx, done := context.WithTimeout(ctx, ackBound)
	defer done()
	return f(ctx)
}

// more waits for output to send, or for output that waits to become due. False:
// nothing came for logLinger, or ctx ended.
func (l *logStream) more(ctx context.Context) bool {
	wait := logLinger
	if !l.first.IsZero() {
		wait = max(0, logEvery-time.Since(l.first))
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-l.spool.grew:
		return true
	case <-t.C:
		return !l.first.IsZero()
	case <-ctx.Done():
		return false
	}
}
