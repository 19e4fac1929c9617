// Snapshot: the transfer of one snapshot in chunks, bounded by progress and not by total time.

package rafttransport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/forgeyard/forgeyard/transport"
	"github.com/hashicorp/raft"
)

// chunkSize is the payload of one snapshot frame, in bytes.
const chunkSize = 64 << 10

// sendSnapshot sends the request, exactly Size bytes, and waits for the answer.
func (t *Transport) sendSnapshot(id raft.ServerID, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	node, err := parseNode(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	var s *transport.Stream
	if err := within(ctx, t.cfg.SnapshotIdle, func(ctx context.Context) (err error) {
		s, err = t.cfg.Endpoint.OpenStream(ctx, node, transport.FamilyRaft)
		return err
	}); err != nil {
		return err
	}
	defer s.Close()
	s.SetPriority(prioritySnapshot)
	if err := within(ctx, t.cfg.SnapshotIdle, func(ctx context.Context) error { return s.WriteFrame(ctx, encodeSnapshot(req)) }); err != nil {
		return err
	}
	err = t.sendChunks(ctx, s, data, req.Size)
	var stopped *transport.Error
	if err != nil && !(errors.As(err, &stopped) && stopped.Remote) {
		return err
	}
	// A follower that stopped listening has answered, and its answer says why.
	if answer := t.snapshotAnswer(ctx, s, resp); err == nil || isRemote(answer) {
		return answer
	}
	return err
}

func (t *Transport) sendChunks(ctx context.Context, s *transport.Stream, data io.Reader, left int64) error {
	buf := make([]byte, chunkSize)
	for left > 0 {
		n, err := io.ReadFull(data, buf[:min(left, chunkSize)])
		if err != nil {
			return fmt.Errorf("snapshot data, %d bytes short: %w", left-int64(n), err)
		}
		if err := within(ctx, t.cfg.SnapshotIdle, func(ctx context.Context) error { return s.WriteFrame(ctx, buf[:n]) }); err != nil {
			return err
		}
		left -= int64(n)
	}
	return nil
}

func (t *Transport) snapshotAnswer(ctx context.Context, s *transport.Stream, resp *raft.InstallSnapshotResponse) error {
	return within(ctx, t.cfg.SnapshotRestore, func(ctx context.Context) error {
		b, err := s.ReadFrame(ctx)
		if err != nil {
			return err
		}
		h, err := decodeSnapshotResponse(b, resp)
		if err != nil {
			return err
		}
		return checkHeader(h, s.Peer())
	})
}

func within(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return f(ctx)
}

// chunks reads the snapshot's bytes from a stream, exactly as many as announced.
type chunks struct {
	ctx  context.Context
	s    *transport.Stream
	idle time.Duration
	left int64  // bytes not received yet
	came func() // called for each chunk
	buf  []byte
	err  error
}

var errTooMuch = errors.New("the snapshot is longer than announced")

// Read implements io.Reader; each chunk must arrive within the idle bound.
func (c *chunks) Read(p []byte) (int, error) {
	for len(c.buf) == 0 && c.err == nil {
		c.fill()
	}
	if len(c.buf) == 0 {
		return 0, c.err
	}
	n := copy(p, c.buf)
	c.buf = c.buf[n:]
	return n, nil
}

func (c *chunks) fill() {
	if c.left == 0 {
		c.err = io.EOF
		return
	}
	c.err = within(c.ctx, c.idle, func(ctx context.Context) error {
		b, err := c.s.ReadFrame(ctx)
		if err == io.EOF { //nolint:errorlint // the bare end of the stream
			return io.ErrUnexpectedEOF
		}
		if err == nil && int64(len(b)) > c.left {
			return errTooMuch
		}
		c.buf = b
		c.left -= int64(len(b))
		if err == nil {
			c.came()
		}
		return err
	})
}

// drain reads what raft left unread, so that the sender can read its answer.
func (c *chunks) drain() error {
	_, err := io.Copy(io.Discard, c)
	return err
}
