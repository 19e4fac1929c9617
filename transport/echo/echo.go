// Package echo asks who holds a datagram port: the answer names a process, a refusal means that there is none.
//
// This file: the two packets. They share the port of a QUIC endpoint, whose
// packets all have one of the two highest bits of their first byte.
package echo

import (
	"bytes"
	"net"

	"github.com/forgeyard/forgeyard/fsm"
)

// Both packets have the same size, so the port is of no use to amplify a flood.
const (
	magic   = "\x1eForgeyard echo 1"
	askKind = 1
	telKind = 2

	kindAt        = len(magic)
	nonceAt       = kindAt + 1
	nonceSize     = 16
	incarnationAt = nonceAt + nonceSize
	size          = incarnationAt + len(fsm.IncarnationID{})
)

// Dial opens a connected datagram socket to a host:port. Only such a socket
// hears that a port is closed.
type Dial func(addr string) (net.Conn, error)

// DialUDP is the Dial of a real network.
func DialUDP(addr string) (net.Conn, error) { return net.Dial("udp", addr) }

// Answer is the answer of the process with this incarnation to a packet; false
// for anything but a question.
func Answer(packet []byte, of fsm.IncarnationID) ([]byte, bool) {
	if len(packet) != size || string(packet[:kindAt]) != magic || packet[kindAt] != askKind {
		return nil, false
	}
	out := bytes.Clone(packet)
	out[kindAt] = telKind
	copy(out[incarnationAt:], of[:])
	return out, true
}

func question(nonce [nonceSize]byte) []byte {
	out := make([]byte, size)
	copy(out, magic)
	out[kindAt] = askKind
	copy(out[nonceAt:], nonce[:])
	return out
}

// told reads the answer to the question with this nonce.
func told(packet []byte, nonce [nonceSize]byte) (fsm.IncarnationID, bool) {
	var of fsm.IncarnationID
	if len(packet) != size || string(packet[:kindAt]) != magic || packet[kindAt] != telKind || !bytes.Equal(packet[nonceAt:incarnationAt], nonce[:]) {
		return of, false
	}
	copy(of[:], packet[incarnationAt:])
	return of, true
}
