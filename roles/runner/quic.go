// Streams of the agent family: what a daemon does with one, and the agent's dialer over a QUIC endpoint.

package runner

import (
	"context"
	"fmt"

	"github.com/forgeyard/forgeyard/transport"
)

// The order of an agent's streams on its connection: bytes never hold up heartbeats.
const (
	linkUrgency     = 1
	transferUrgency = 5
)

// Attach serves the agents that link to the endpoint, each under the id in its
// certificate. The endpoint's own Close ends them.
func Attach(e *transport.Endpoint, s *Sessions) {
	e.HandleStream(transport.FamilyAgent, func(ctx context.Context, from transport.Peer, stream *transport.Stream) {
		if err := s.ServeStream(ctx, from.Subject.ID, stream); err != nil {
			s.log.Debug("agent stream", "agent", from.Subject.ID, "remote", from.Remote, "err", err)
		}
	})
}

// ServeStream handles one stream of an agent until it ends, and closes it. Its
// first message says what it is: a link or a transfer.
func (s *Sessions) ServeStream(ctx context.Context, agent string, f Frames) error {
	defer f.Close()
	link := NewLink(f)
	first, done := context.WithTimeout(ctx, s.cfg.Timing.Request)
	m, err := link.Receive(first)
	done()
	switch {
	case err != nil:
		return fmt.Errorf("agent %s: first message: %w", agent, err)
	case m.Transfer != nil:
		if stream, ok := f.(*transport.Stream); ok {
			stream.SetPriority(transferUrgency)
		}
		return serveTransfer(ctx, agent, *m.Transfer, f, s.cfg.Transfers)
	}
	return s.Serve(ctx, agent, &begunLink{Link: link, first: &m})
}

func serveTransfer(ctx context.Context, agent string, open Transfer, f Frames, by TransferServer) error {
	s := TransferStream{frames: f}
	if by == nil {
		return s.Send(ctx, Frame{Refused: &Refused{Reason: "this daemon has no artifact store"}})
	}
	if err := by.ServeTransfer(ctx, agent, open, s); err != nil {
		return fmt.Errorf("agent %s: transfer: %w", agent, err)
	}
	return nil
}

// begunLink is a link whose first message was read already.
type begunLink struct {
	Link
	first *Message
}

func (l *begunLink) Receive(ctx context.Context) (Message, error) {
	if m := l.first; m != nil {
		l.first = nil
		return *m, nil
	}
	return l.Link.Receive(ctx)
}

// QUIC dials daemons through an agent's endpoint.
type QUIC struct {
	Endpoint *transport.Endpoint
}

// Dial opens a link to the daemon at addr.
func (q QUIC) Dial(ctx context.Context, addr string) (Uplink, error) {
	stream, err := q.open(ctx, addr, linkUrgency)
	if err != nil {
		return nil, err
	}
	return quicUplink{Link: NewLink(stream), dialer: q, addr: addr}, nil
}

func (q QUIC) open(ctx context.Context, addr string, urgency int8) (*transport.Stream, error) {
	stream, _, err := q.Endpoint.OpenStreamAddr(ctx, addr, transport.FamilyAgent)
	if err != nil {
		return nil, err
	}
	stream.SetPriority(urgency)
	return stream, nil
}

type quicUplink struct {
	Link
	dialer QUIC
	addr   string
}

// Open opens a stream on the connection of the link, which is the only live one to that address.
func (l quicUplink) Open(ctx context.Context) (Frames, error) {
	stream, err := l.dialer.open(ctx, l.addr, transferUrgency)
	if err != nil {
		return nil, err // not a nil *Stream in the interface
	}
	return stream, nil
}

// NewLink carries one message per frame.
func NewLink(f Frames) Link { return frameLink{f} }

type frameLink struct{ frames Frames }

func (l frameLink) Send(ctx context.Context, m Message) error {
	b, err := EncodeMessage(m)
	if err != nil {
		return err
	}
	return l.frames.WriteFrame(ctx, b)
}

func (l frameLink) Receive(ctx context.Context) (Message, error) {
	b, err := l.frames.ReadFrame(ctx)
	if err != nil {
		return Message{}, err
	}
	return DecodeMessage(b)
}

func (l frameLink) Close() error {
	l.frames.Close()
	return nil
}
