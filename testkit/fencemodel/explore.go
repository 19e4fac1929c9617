// The explorer: every world that any order of moves can reach, breadth first, so that a counterexample is a shortest one.

package fencemodel

import (
	"fmt"
	"slices"
	"strings"
)

// Bounds keep the model finite.
type Bounds struct {
	Owners    int // 1 to 3; owner n has epoch n, and all believe in theirs from the start
	Mutations int // of each owner, one after the other
	Crashes   int // of owners; their sessions work on
	Losses    int // of connections whose session works on
	Restarts  int // of the database

	Agent         bool // there is one, and Mutations is at most 2
	AgentRestarts int
}

// Result is what an exploration found.
type Result struct {
	States     int
	Depth      int            // of the longest shortest way
	Seen       map[string]int // moves of each notable kind: a model in which nothing happens proves nothing
	Violation  string         // empty when every reachable state is well
	Trace      []string       // the moves that lead to the violation
	Interfered bool           // epochs rose while an older owner had a transaction open
}

// String prints the finding, with the counterexample one move a line.
func (r Result) String() string {
	if r.Violation == "" {
		return fmt.Sprintf("%d states, depth %d, no violation; %v", r.States, r.Depth, r.Seen)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, found after %d states:", r.Violation, r.States)
	for i, what := range r.Trace {
		fmt.Fprintf(&b, "\n  %2d. %s", i+1, what)
	}
	return b.String()
}

// Explore visits every world that the protocol can reach within the bounds and
// stops at the first that breaks a property: a mutation of an older epoch commits
// after a newer raise has, the fence goes down, an owner was told of a mutation
// that is rolled back, the agent accepts or starts a lease of an epoch below one that it
// has seen, or starts one twice, or nothing can happen though an owner has not finished.
func Explore(p Protocol, b Bounds) Result {
	m := machine{protocol: p, bounds: b}
	var start world
	start.crashes, start.losses, start.restarts = uint8(b.Crashes), uint8(b.Losses), uint8(b.Restarts)
	start.agentRestarts = uint8(b.AgentRestarts)
	x := exploration{ids: map[world]int32{start: 0}, worlds: []world{start}, from: []int32{-1}, depth: []int16{0}}
	var counts [events]int
	r := Result{Seen: map[string]int{}}
	for at := 0; at < len(x.worlds) && r.Violation == ""; at++ {
		any, w := false, x.worlds[at]
		m.moves(&w, func(mv *move) {
			any = any || mv.kind < arrives // an order may arrive for ever
			counts[mv.seen]++
			if mv.bad != "" && r.Violation == "" {
				r.Violation, r.Trace = mv.bad, append(x.trace(m, int32(at)), mv.String())
			}
			r.Interfered = r.Interfered || mv.seen == raised && w.older(mv.next.high)
			x.visit(mv.next, int32(at))
		})
		if !any && !w.finished(b.Owners) {
			r.Violation, r.Trace = "nothing can happen any more", x.trace(m, int32(at))
		}
	}
	for e := other + 1; e < events; e++ {
		r.Seen[eventNames[e]] = counts[e]
	}
	r.States, r.Depth = len(x.worlds), int(slices.Max(x.depth))
	return r
}

// older reports whether a mutation of an epoch below e is under way.
func (w world) older(e uint8) bool {
	for i := range w.sessions {
		for _, s := range w.sessions[i] {
			if s.task == mutating && uint8(i+1) < e {
				return true
			}
		}
	}
	return false
}

func (w world) finished(owners int) bool {
	for i := range owners {
		if !w.owners[i].gone {
			return false
		}
	}
	return true
}

type exploration struct {
	ids    map[world]int32
	worlds []world
	from   []int32
	depth  []int16
}

func (x *exploration) visit(w world, from int32) {
	if _, known := x.ids[w]; known {
		return
	}
	x.ids[w] = int32(len(x.worlds))
	x.worlds, x.from, x.depth = append(x.worlds, w), append(x.from, from), append(x.depth, x.depth[from]+1)
}

// trace names the moves of the shortest way to a world.
func (x *exploration) trace(m machine, id int32) (names []string) {
	for ; x.from[id] >= 0; id = x.from[id] {
		found := false
		m.moves(&x.worlds[x.from[id]], func(mv *move) {
			if !found && mv.next == x.worlds[id] {
				found = true
				names = append(names, mv.String())
			}
		})
	}
	slices.Reverse(names)
	return names
}
