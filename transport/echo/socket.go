// Socket: one question at a time to one port.

package echo

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
)

// Outcome is what became of a question.
type Outcome uint8

// Silence proves nothing: the packet or its answer may be lost, or filtered.
const (
	Silent Outcome = iota
	Echoed
	Refused // nobody holds the port, or a filter says so
)

// Reply is the outcome of one question.
type Reply struct {
	Outcome
	Incarnation fsm.IncarnationID // of the process that answered; zero unless Echoed
	// Sent is when the question left. An answer that lay in a buffer while this
	// process was paused proves nothing newer.
	Sent time.Time
}

// Socket asks one port. It is not safe for concurrent use.
type Socket struct {
	conn net.Conn
	now  func() time.Time
	buf  [size + 1]byte
}

// NewSocket takes a connected datagram socket over.
func NewSocket(conn net.Conn, now func() time.Time) *Socket { return &Socket{conn: conn, now: now} }

// Close closes the socket.
func (s *Socket) Close() error { return s.conn.Close() }

// Ask asks who is there and waits for the answer, at most for the bound. An
// error means that the socket is of no use any more.
func (s *Socket) Ask(wait time.Duration) (Reply, error) {
	var nonce [nonceSize]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return Reply{}, fmt.Errorf("echo: %w", err)
	}
	reply := Reply{Sent: s.now()}
	if err := s.send(question(nonce)); err != nil {
		return reply, ignoreLoss(err)
	}
	if err := s.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return reply, fmt.Errorf("echo: %w", err)
	}
	for {
		n, err := s.conn.Read(s.buf[:])
		switch {
		case err != nil && s.now().Sub(reply.Sent) > 2*wait:
			return reply, ignoreLoss(err) // this process slept: when the refusal came is not known
		case errors.Is(err, syscall.ECONNREFUSED):
			reply.Outcome = Refused
			return reply, nil
		case err != nil:
			return reply, ignoreLoss(err)
		}
		if of, ok := told(s.buf[:n], nonce); ok {
			reply.Outcome, reply.Incarnation = Echoed, of
			return reply, nil
		}
	}
}

// send sends a packet. What the kernel still had to tell of an earlier one comes
// out of the next write, which then has sent nothing.
func (s *Socket) send(packet []byte) error {
	_, err := s.conn.Write(packet)
	if errors.Is(err, syscall.ECONNREFUSED) {
		_, err = s.conn.Write(packet)
	}
	return err
}

// ignoreLoss turns what happens on a network, an unreachable host or a full
// queue, into silence; only a closed socket is an error.
func ignoreLoss(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("echo: %w", err)
	}
	return nil
}
