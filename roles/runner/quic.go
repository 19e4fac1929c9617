// Links over the agent family of a QUIC endpoint: the daemon's attachment and the agent's dialer.

package runner

import (
	"context"

	"github.com/forgeyard/forgeyard/transport"
)

// Attach serves the agents that link to the endpoint, each under the id in its
// certificate. The endpoint's own Close ends them.
func Attach(e *transport.Endpoint, s *Sessions) {
	e.HandleStream(transport.FamilyAgent, func(ctx context.Context, from transport.Peer, stream *transport.Stream) {
		if err := s.Serve(ctx, from.Subject.ID, streamLink{stream}); err != nil {
			s.log.Debug("agent link", "agent", from.Subject.ID, "remote", from.Remote, "err", err)
		}
	})
}

// QUIC dials daemons through an agent's endpoint.
type QUIC struct {
	Endpoint *transport.Endpoint
}

// Dial opens a link to the daemon at addr.
func (q QUIC) Dial(ctx context.Context, addr string) (Link, error) {
	stream, _, err := q.Endpoint.OpenStreamAddr(ctx, addr, transport.FamilyAgent)
	if err != nil {
		return nil, err
	}
	return streamLink{stream}, nil
}

// streamLink carries one message per frame.
type streamLink struct {
	stream *transport.Stream
}

func (l streamLink) Send(ctx context.Context, m Message) error {
	b, err := EncodeMessage(m)
	if err != nil {
		return err
	}
	return l.stream.WriteFrame(ctx, b)
}

func (l streamLink) Receive(ctx context.Context) (Message, error) {
	b, err := l.stream.ReadFrame(ctx)
	if err != nil {
		return Message{}, err
	}
	return DecodeMessage(b)
}

func (l streamLink) Close() error {
	l.stream.Close()
	return nil
}
