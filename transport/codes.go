// Codes: why a connection, stream or call ended. They travel as QUIC application error codes, so both sides know.

package transport

import (
	"fmt"

	"github.com/forgeyard/forgeyard/transport/pki"
)

// Code is a reason. The numbers are wire numbers: never reuse one.
type Code uint32

// The reasons. CodeOK and CodeShutdown are ordinary ends, CodeNetwork and
// CodeTimeout arise on this side, the others are somebody's refusal.
const (
	CodeOK          Code = 0
	CodeShutdown    Code = 0x01 // the peer's process stops
	CodeNetwork     Code = 0x02 // the connection broke or could not be made
	CodeTimeout     Code = 0x03 // the caller's deadline passed, or it gave up
	CodeUnknownPeer Code = 0x04 // no address is known for the node

	CodeNoCertificate Code = 0x10
	CodeAuthority     Code = 0x11
	CodeExpired       Code = 0x12
	CodeWrongCluster  Code = 0x13
	CodeWrongKind     Code = 0x14
	CodeIDMismatch    Code = 0x15
	CodeBadName       Code = 0x16 // not exactly one URI SAN
	CodeWrongPurpose  Code = 0x17

	CodeGeneration Code = 0x20
	CodeProtocol   Code = 0x21
	CodeNotMember  Code = 0x22
	CodeRemoved    Code = 0x23
	CodeRefused    Code = 0x24 // the admission policy refused, its message says why
	CodeStarting   Code = 0x25 // what would serve this is not there yet

	CodeBusy          Code = 0x30 // a bound on connections was reached
	CodeMalformed     Code = 0x31
	CodeTooLarge      Code = 0x32
	CodeUnknownFamily Code = 0x33
	CodeVersion       Code = 0x34
	CodeWrongFamily   Code = 0x35
	CodeNoHandler     Code = 0x36
)

// codeFact is what is known of a reason: its code for people, the kind of
// coordination error it becomes (§314), its text and the next step.
type codeFact struct {
	fy, text, hint string
	kind           uint8
	final          bool // trying the same again cannot help
}

// Kinds of cluster.Kind that the transport produces; that package owns them.
const (
	kindMembershipConflict  = 4
	kindJoinRejected        = 5
	kindIncompatibleVersion = 6
	kindTransportFailure    = 8
	kindInternal            = 9
)

func (c Code) fact() codeFact {
	const tf = kindTransportFailure
	cert := func(e *pki.Error) codeFact { return codeFact{e.Code, e.Message, e.Hint, kindJoinRejected, true} }
	switch c {
	case CodeOK, CodeShutdown:
		return codeFact{"FY-NET-001", "the peer closed the connection", "", tf, false}
	case CodeNetwork:
		return codeFact{"FY-NET-002", "the connection failed", "check that the peer runs and that its UDP port is reachable", tf, false}
	case CodeTimeout:
		return codeFact{"FY-NET-003", "no answer in time", "check that the peer runs and that its UDP port is reachable", tf, false}
	case CodeUnknownPeer:
		return codeFact{"FY-NET-004", "no address is known for this node", "", tf, false}
	case CodeNoCertificate:
		return cert(pki.ErrMissing)
	case CodeAuthority:
		return cert(pki.ErrAuthority)
	case CodeExpired:
		return cert(pki.ErrExpired)
	case CodeWrongCluster:
		return cert(pki.ErrCluster)
	case CodeWrongKind:
		return cert(pki.ErrKind)
	case CodeIDMismatch:
		return cert(pki.ErrID)
	case CodeBadName:
		return cert(pki.ErrSAN)
	case CodeWrongPurpose:
		return cert(pki.ErrPurpose)
	case CodeGeneration:
		return codeFact{"FY-NET-010", "the peer is of another recovery generation", "the side with the older generation must join again", kindMembershipConflict, true}
	case CodeProtocol:
		return codeFact{"FY-NET-011", "the two builds speak no common protocol version", "upgrade the older build", kindIncompatibleVersion, true}
	case CodeNotMember:
		return codeFact{"FY-NET-012", "this node is not a member of the cluster", "join it: forgeyard cluster add", kindJoinRejected, true}
	case CodeRemoved:
		return codeFact{"FY-NET-013", "this node was removed from the cluster", "a removed id never returns; issue a new one: forgeyard pki issue", kindJoinRejected, true}
	case CodeRefused:
		return codeFact{"FY-NET-014", "the peer refused", "", kindJoinRejected, true}
	case CodeStarting:
		return codeFact{"FY-NET-015", "the node is starting", "nothing to do: it is asked again by itself; if it stays so, see that node's log", tf, false}
	case CodeBusy:
		return codeFact{"FY-NET-020", "the peer has no room for another connection", "", tf, false}
	case CodeMalformed:
		return codeFact{"FY-NET-021", "a malformed message", "", kindIncompatibleVersion, true}
	case CodeTooLarge:
		return codeFact{"FY-NET-022", "a message above the bound of its family", "", kindIncompatibleVersion, true}
	case CodeUnknownFamily:
		return codeFact{"FY-NET-023", "an unknown message family", "upgrade the older build", kindIncompatibleVersion, true}
	case CodeVersion:
		return codeFact{"FY-NET-024", "an unknown version of a message family", "upgrade the older build", kindIncompatibleVersion, true}
	case CodeWrongFamily:
		return codeFact{"FY-NET-025", "a message family that this pair of peers may not use", "", kindIncompatibleVersion, true}
	case CodeNoHandler:
		return codeFact{"FY-NET-026", "the peer does not serve this", "upgrade the older build", kindIncompatibleVersion, true}
	}
	return codeFact{"FY-NET-027", fmt.Sprintf("unknown reason %#x", uint32(c)), "upgrade the older build", kindIncompatibleVersion, true}
}

// closes reports whether an admission refusal for this reason also closes the connection.
func (c Code) closes() bool { return c == CodeRemoved }

// certCode translates a judgement of package pki.
func certCode(e *pki.Error) Code {
	for _, c := range []Code{CodeNoCertificate, CodeAuthority, CodeExpired, CodeWrongCluster, CodeWrongKind, CodeIDMismatch, CodeBadName, CodeWrongPurpose} {
		if c.fact().fy == e.Code {
			return c
		}
	}
	return CodeRefused
}
