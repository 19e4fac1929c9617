// What both models share: intervals, outcomes, and the verdict with its reason.

package linear

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Open is the Return of an operation whose answer never came: it may take effect at any later time, or never.
const Open int64 = math.MaxInt64

// Interval is when an operation was called and when its answer was known, in
// nanoseconds on one monotonic scale for the whole history.
type Interval struct {
	Call, Return int64
}

func (i Interval) operation(input any) porcupine.Operation {
	return porcupine.Operation{Input: input, Call: i.Call, Return: i.Return}
}

// Outcome is what the caller was told.
type Outcome uint8

// The outcomes. An operation that was Refused certainly changed nothing.
const (
	Done Outcome = iota
	Refused
	Unknown
)

func (o Outcome) String() string { return [...]string{"done", "refused", "unknown"}[o] }

// patience bounds one check. A history that takes longer is too long or too full of unknown outcomes.
const patience = time.Minute

// check is the verdict. An empty history is refused: it proves nothing.
func check(what string, model porcupine.NondeterministicModel, ops []porcupine.Operation) error {
	if len(ops) == 0 {
		return fmt.Errorf("%s: the history is empty", what)
	}
	for _, op := range ops {
		if op.Return < op.Call {
			return fmt.Errorf("%s: %s was answered %d ns before it was called", what, model.DescribeOperation(op.Input, op.Output), op.Call-op.Return)
		}
	}
	for _, part := range model.Partition(ops) {
		alone := model
		alone.Partition = nil
		switch porcupine.CheckOperationsTimeout(alone.ToModel(), part, patience) {
		case porcupine.Ok:
		case porcupine.Unknown:
			return fmt.Errorf("%s: %d operations were not decided in %s", what, len(part), patience)
		default:
			_, info := porcupine.CheckOperationsVerbose(alone.ToModel(), part, patience)
			return fmt.Errorf("%s: not linearizable: %s", what, explain(model, part, info))
		}
	}
	return nil
}

// explain shows the longest order that fits and what does not fit behind it.
func explain(model porcupine.NondeterministicModel, ops []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var best []porcupine.Operation
	for _, part := range info.PartialLinearizationsOperations() {
		for _, order := range part {
			if len(order) > len(best) {
				best = order
			}
		}
	}
	states := model.Init()
	fitted := map[porcupine.Operation]int{}
	var b strings.Builder
	for _, op := range best {
		var next []any
		for _, s := range states {
			next = append(next, model.Step(s, op.Input, op.Output)...)
		}
		states = next
		fitted[op]++
	}
	fmt.Fprintf(&b, "%d of %d operations fit", len(best), len(ops))
	if n := len(best); n > 0 {
		fmt.Fprintf(&b, ", the last is %s", model.DescribeOperation(best[n-1].Input, best[n-1].Output))
	}
	if len(states) > 0 {
		fmt.Fprintf(&b, "; then the state is %s", model.DescribeState(states[0]))
	}
	fmt.Fprint(&b, ", and none of these fits:")
	shown := 0
	for _, op := range ops {
		if fitted[op] > 0 {
			fitted[op]--
			continue
		}
		if shown++; shown > 5 {
			break
		}
		fmt.Fprintf(&b, "\n  %s [%d, %d]", model.DescribeOperation(op.Input, op.Output), op.Call, op.Return)
	}
	return b.String()
}

// partition splits a history by the key of its operations: it is linearizable
// exactly if each part is.
func partition(key func(op any) any) func([]porcupine.Operation) [][]porcupine.Operation {
	return func(history []porcupine.Operation) [][]porcupine.Operation {
		at := map[any]int{}
		var parts [][]porcupine.Operation
		for _, op := range history {
			k := key(op.Input)
			i, known := at[k]
			if !known {
				i = len(parts)
				at[k], parts = i, append(parts, nil)
			}
			parts[i] = append(parts[i], op)
		}
		return parts
	}
}
