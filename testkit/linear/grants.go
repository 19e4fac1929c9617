// Package linear checks recorded histories for linearizability: every operation
// must have taken effect at one instant between its call and its answer.
//
// This file: who owned which role. There are two registers of that, the committed
// state and the fence of PostgreSQL; each has its own history.
package linear

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/forgeyard/forgeyard/fsm"
)

// GrantKind is what was done to the ownership of a role.
type GrantKind uint8

// The operations. All of them but Raise are on the committed state.
const (
	Assign  GrantKind = iota // the role, at epoch Expected, went to Owner under Epoch
	Renew                    // Owner, who held epoch Expected, got Epoch instead
	Release                  // Owner gave up Epoch
	Vacate                   // Owner lost the role if it had it: its process was replaced
	Remove                   // no process of the node Owner has the role any more, nor ever gets it again
	Raise                    // Owner raised the fence to Epoch
	Observe                  // somebody read that Owner has Epoch; an empty Owner is a vacant role
)

var grantNames = [...]string{"assign", "renew", "release", "vacate", "remove", "raise", "observe"}

// Grant is one operation on the ownership of a role.
type Grant struct {
	Interval
	Kind       GrantKind
	Role       fsm.Role
	Owner      string // a process, as Process names it: no two have the same; Remove: a node
	Generation fsm.Generation
	Expected   fsm.Epoch // Assign, Renew
	Epoch      fsm.Epoch // 0 when the outcome is unknown and the epoch would have come with it
	Outcome    Outcome
}

func (g Grant) String() string {
	s := fmt.Sprintf("%s %s", grantNames[g.Kind], g.Role)
	if g.Kind == Assign || g.Kind == Renew {
		s += fmt.Sprintf(" at %d", g.Expected)
	}
	return fmt.Sprintf("%s: epoch %d of generation %d, owner %q, %s", s, g.Epoch, g.Generation, g.Owner, g.Outcome)
}

// Grants returns an error that tells the first contradiction: a later grant has a
// strictly higher epoch, and between two grants the role has one owner or none.
func Grants(history []Grant) error {
	ops := make([]porcupine.Operation, len(history))
	for i, g := range history {
		ops[i] = g.operation(g)
	}
	return check("grants", grantModel, ops)
}

// held is the state of one role.
type held struct {
	generation fsm.Generation
	epoch      fsm.Epoch
	owner      string
	above      bool   // epoch is only a lower bound: the answer that named it was lost
	removed    string // nodes, in order, with a space between them
}

func (h held) String() string {
	at := "at"
	if h.above {
		at = "at or above"
	}
	return fmt.Sprintf("%s epoch %d of generation %d, owner %q", at, h.epoch, h.generation, h.owner)
}

// at reports whether the state may be at exactly this epoch.
func (h held) at(e fsm.Epoch) bool { return h.epoch == e || h.above && h.epoch < e }

// gone reports whether a process is one of a removed node.
func (h held) gone(process string) bool {
	node, _, _ := strings.Cut(process, "/")
	return slices.Contains(strings.Fields(h.removed), node)
}

// without is the state once a node is removed.
func (h held) without(node string) held {
	if h.gone(node) {
		return h
	}
	nodes := append(strings.Fields(h.removed), node)
	slices.Sort(nodes)
	h.removed = strings.Join(nodes, " ")
	if h.gone(h.owner) {
		h.owner = ""
	}
	return h
}

// below reports whether the state is certainly below a generation and epoch.
func (h held) below(g fsm.Generation, e fsm.Epoch) bool {
	return h.generation < g || h.generation == g && h.epoch < e
}

// grantModel is a model of one role; other roles are other partitions.
var grantModel = porcupine.NondeterministicModel{
	Partition: partition(func(op any) any { return op.(Grant).Role }),
	Init:      func() []any { return []any{held{}} },
	Step: func(state, input, _ any) []any {
		s, g := state.(held), input.(Grant)
		next, fits := s.after(g)
		switch {
		case g.Outcome == Refused:
			if g.Kind == Raise && fits {
				return nil // it would have been in order
			}
			return []any{s} // what else may refuse a command is not in this model
		case g.Outcome == Unknown && (!fits || next == s):
			return []any{s}
		case g.Outcome == Unknown:
			return []any{s, next}
		case fits:
			return []any{next}
		}
		return nil
	},
	Equal:             func(a, b any) bool { return a == b },
	DescribeOperation: func(input, _ any) string { return input.(Grant).String() },
	DescribeState:     func(s any) string { return s.(held).String() },
}

// after is the state that an operation leads to, and whether it is in order at all.
func (h held) after(g Grant) (held, bool) {
	next := held{g.Generation, g.Epoch, g.Owner, false, h.removed}
	switch g.Kind {
	case Assign, Renew:
		if !h.at(g.Expected) || g.Generation < h.generation || g.Kind == Renew && h.owner != g.Owner || h.gone(g.Owner) {
			return h, false
		}
		if g.Epoch == 0 {
			next.epoch, next.above = g.Expected+1, true
			return next, g.Outcome == Unknown
		}
		return next, g.Epoch > g.Expected
	case Raise:
		return next, h.below(g.Generation, g.Epoch) || h == next
	case Release:
		next.owner = ""
		return next, h.at(g.Epoch) && h.owner == g.Owner && h.generation == g.Generation
	case Vacate:
		if h.owner == g.Owner {
			h.owner = ""
		}
		return h, true
	case Remove:
		return h.without(g.Owner), true
	}
	if g.Epoch == 0 { // Observe: never granted, in whatever generation
		return h, h == held{removed: h.removed}
	}
	return next, h.at(g.Epoch) && h.owner == g.Owner && h.generation == g.Generation
}
