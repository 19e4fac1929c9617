// Package trace records what a process did with its authority, in order, so that
// tests can assert the order from the outside (§294): one JSON object a line.
package trace

import (
	"github.com/forgeyard/forgeyard/fsm"
)

// Kind names a traced step.
type Kind string

// The traced steps. The Service traces grant to release and exit; the actor
// system traces poison to loop_end. The lines of one writer stand in the order of
// its steps. A loop sees its context end at the cancel itself, so its loop_end may
// stand before the Service's three lines of the revocation: Mono tells.
const (
	Grant        Kind = "grant"         // a guard was minted
	Fenced       Kind = "fenced"        // the database fence is raised
	Active       Kind = "active"        // loops may run
	CheckRefused Kind = "check_refused" // the first refusal of a guard, once per grant
	Inactive     Kind = "inactive"      // revoking, step 1
	Cancel       Kind = "cancel"        // revoking, step 2
	Invalidate   Kind = "invalidate"    // revoking, step 3
	Spent        Kind = "spent"         // a revocation that the view did not order
	Bump         Kind = "bump"          // a BumpEpoch for a spent epoch was committed
	Release      Kind = "release"       // a ReleaseRole for a spent epoch was committed
	Poison       Kind = "poison"
	Stop         Kind = "stop"
	Terminated   Kind = "terminated"
	LoopStart    Kind = "loop_start"
	LoopEnd      Kind = "loop_end"
	Exit         Kind = "exit"    // the process gives itself up
	Applied      Kind = "applied" // a committed entry was applied: Index and Hash, and nothing else
)

// Event is one traced step.
type Event struct {
	// Mono is CLOCK_MONOTONIC in nanoseconds, comparable between the processes of
	// one machine. Zero means that the tracer stamps the event.
	Mono        int64             `json:"mono_ns"`
	Node        fsm.NodeID        `json:"node,omitzero"`
	Incarnation fsm.IncarnationID `json:"incarnation,omitzero"`
	Kind        Kind              `json:"kind"`
	Role        fsm.Role          `json:"role,omitzero"`
	Generation  fsm.Generation    `json:"generation,omitzero"`
	Epoch       fsm.Epoch         `json:"epoch,omitzero"`
	Detail      string            `json:"detail,omitempty"` // cause, loop name, actor path
	Index       uint64            `json:"index,omitzero"`   // of the entry
	Hash        string            `json:"hash,omitempty"`   // of the coordination state after it, in hexadecimal
}

// Tracer records events. Implementations are safe for concurrent use and never fail the caller.
type Tracer interface {
	Trace(Event)
}

// Discard records nothing.
var Discard Tracer = discard{}

type discard struct{}

func (discard) Trace(Event) {}
