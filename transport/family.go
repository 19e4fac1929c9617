// Package transport is the one QUIC endpoint of a socket: mutual TLS identity, message families, calls and streams (§54–§59).
package transport

import (
	"fmt"

	"github.com/forgeyard/forgeyard/transport/pki"
)

// Family is a kind of traffic (§55). Every frame carries it, so a stream of one
// family can never carry another's messages.
type Family uint8

// The message families. The numbers are wire numbers: never reuse one.
const (
	familyHello   Family = 0x48 // the first exchange of a connection, and nothing after it
	FamilyRaft    Family = 1    // node to node
	FamilyControl Family = 2    // node to node
	FamilyDeploy  Family = 3    // node to node
	FamilyAgent   Family = 4    // agent and node
)

// familyVersion is the version of every family's framing that this build speaks.
const familyVersion = 1

// familyRule is what is fixed about a family.
type familyRule struct {
	name     string
	maxFrame int // bytes of payload, checked before anything is allocated (§219)
}

func (f Family) rule() (familyRule, bool) {
	switch f {
	case familyHello:
		return familyRule{"hello", 4 << 10}, true
	case FamilyRaft:
		// 1024 entries, the library's maximum, of 8 KiB commands, and their headers.
		return familyRule{"raft", 9 << 20}, true
	case FamilyControl:
		return familyRule{"control", 1 << 20}, true
	case FamilyDeploy:
		return familyRule{"deploy", 1 << 20}, true
	case FamilyAgent:
		return familyRule{"agent", 1 << 20}, true
	}
	return familyRule{}, false
}

func (f Family) String() string {
	if r, ok := f.rule(); ok {
		return r.name
	}
	return fmt.Sprintf("Family(%d)", uint8(f))
}

// MaxFrame is the largest payload of one frame, in bytes; 0 for an unknown family.
func (f Family) MaxFrame() int {
	r, _ := f.rule()
	return r.maxFrame
}

// open reports whether holders of these two kinds may use the family between
// them: nodes the node families, an agent and a node the agent family, nobody else anything (§58).
func (f Family) open(a, b pki.Kind) bool {
	switch f {
	case FamilyRaft, FamilyControl, FamilyDeploy:
		return a == pki.KindNode && b == pki.KindNode
	case FamilyAgent:
		return a == pki.KindNode && b == pki.KindAgent || a == pki.KindAgent && b == pki.KindNode
	}
	return false
}
