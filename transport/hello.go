// Hello: the first exchange of a connection. Only its answer means "connected" (§126).

package transport

import (
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// Hello is what each side says of itself before anything else.
type Hello struct {
	Cluster fsm.ClusterID `cbor:"1,keyasint"`
	// Generation is the recovery generation; 0 when not known yet (a joiner, an agent).
	Generation  fsm.Generation    `cbor:"2,keyasint"`
	ID          string            `cbor:"3,keyasint"` // must be the certificate's
	Incarnation fsm.IncarnationID `cbor:"4,keyasint"`
	ProtocolMin uint32            `cbor:"5,keyasint"`
	ProtocolMax uint32            `cbor:"6,keyasint"`
	Endpoint    string            `cbor:"7,keyasint,omitempty"` // where the sender can be dialled, host:port; at most fsm.MaxEndpoint bytes
}

// greeting is the frame that opens a connection: the dialling side's hello, or
// why it refuses the side it dialled. A close alone could not tell that: sent
// before the handshake is confirmed, QUIC strips it of its reason (RFC 9000 §10.2.3).
type greeting struct {
	Hello   Hello    `cbor:"1,keyasint,omitzero"`
	Refused *refusal `cbor:"2,keyasint,omitempty"`
}

// checkHello judges the peer's hello against its certificate and our own hello.
func checkHello(own, theirs Hello, peer pki.Subject) *Error {
	switch {
	case theirs.Cluster != own.Cluster || theirs.Cluster != peer.Cluster:
		return Refuse(CodeWrongCluster, "the peer speaks for cluster %s, this is cluster %s", theirs.Cluster, own.Cluster)
	case theirs.ID != peer.ID:
		return Refuse(CodeIDMismatch, "the peer says it is %q, its certificate is of %q", clip(theirs.ID), peer.ID)
	case theirs.ProtocolMin > theirs.ProtocolMax || len(theirs.Endpoint) > fsm.MaxEndpoint:
		return Refuse(CodeMalformed, "hello out of bounds")
	case theirs.ProtocolMax < own.ProtocolMin || theirs.ProtocolMin > own.ProtocolMax:
		return Refuse(CodeProtocol, "the peer speaks %d to %d, this side %d to %d",
			theirs.ProtocolMin, theirs.ProtocolMax, own.ProtocolMin, own.ProtocolMax)
	case theirs.Generation != own.Generation && theirs.Generation != 0 && own.Generation != 0:
		return Refuse(CodeGeneration, "the peer is of generation %d, this side of %d", theirs.Generation, own.Generation)
	}
	return nil
}
