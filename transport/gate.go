// Gate: how many strangers may be at the door. Incoming connections count from their first packet to their hello (§219).

package transport

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/forgeyard/forgeyard/transport/pki"
	"github.com/quic-go/quic-go"
)

// gate counts the incoming connections that have not answered the hello yet.
type gate struct{ waiting atomic.Int64 }

func (g *gate) count() int { return int(g.waiting.Load()) }

// visit is one incoming connection's place at the gate; left exactly once.
type visit struct {
	gate *gate
	gone atomic.Bool
}

// leave gives the place back and reports whether it was still held.
func (v *visit) leave() bool {
	held := v.gone.CompareAndSwap(false, true)
	if held {
		v.gate.waiting.Add(-1)
	}
	return held
}

type visitKey struct{}

var errFull = errors.New("no room for another connection")

// enter is called for the first packet of every incoming connection. The
// context that it gets ends with the connection, so a place is always given back.
func (e *Endpoint) enter(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	waiting := int(e.gate.waiting.Add(1))
	if waiting > e.limits.Handshakes || waiting+e.peers.total() > e.limits.Connections || !e.tasks.Begin() {
		e.gate.waiting.Add(-1)
		return nil, errFull
	}
	v := &visit{gate: &e.gate}
	context.AfterFunc(ctx, func() {
		defer e.tasks.End()
		if !v.leave() {
			return
		}
		// It ended before its hello: the handshake failed, or a refusal was reported already.
		var err *Error
		if errors.As(classify(context.Cause(ctx)), &err) && (err.Code == CodeNetwork || err.Code == CodeNoCertificate) {
			e.rejected(info.RemoteAddr, pki.Subject{}, err)
		}
	})
	return context.WithValue(ctx, visitKey{}, v), nil
}

func visitOf(qc *quic.Conn) *visit {
	v, _ := qc.Context().Value(visitKey{}).(*visit)
	return v
}
