// Leases: one at a time for a job, ended only by whoever holds it, under attempts that grow.

package linear

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// LeaseKind is what was done to a job's lease.
type LeaseKind uint8

// The operations.
const (
	Take     LeaseKind = iota // Holder got the lease
	Complete                  // Holder ended it with a result; a repetition is answered as the first time was
	Expire                    // it was ended without its holder
)

var leaseNames = [...]string{"take", "complete", "expire"}

// Lease is one operation on the lease of a job.
type Lease struct {
	Interval
	Kind    LeaseKind
	Job     string
	Holder  string // empty in a history that does not tell; then it is so everywhere
	Attempt int
	Outcome Outcome
}

func (l Lease) String() string {
	return fmt.Sprintf("%s attempt %d of job %s, holder %q, %s", leaseNames[l.Kind], l.Attempt, l.Job, l.Holder, l.Outcome)
}

// Leases returns an error that tells the first contradiction: a job has at most
// one active lease, only its holder completes it, and a later lease has a higher attempt.
func Leases(history []Lease) error {
	ops := make([]porcupine.Operation, len(history))
	for i, l := range history {
		ops[i] = l.operation(l)
	}
	return check("leases", leaseModel, ops)
}

// leased is the state of one job.
type leased struct {
	attempt   int
	holder    string
	active    bool
	completed bool // by the holder
}

func (s leased) String() string {
	return fmt.Sprintf("attempt %d, holder %q, active %t, completed %t", s.attempt, s.holder, s.active, s.completed)
}

// leaseModel is a model of one job; other jobs are other partitions.
var leaseModel = porcupine.NondeterministicModel{
	Partition: partition(func(op any) any { return op.(Lease).Job }),
	Init:      func() []any { return []any{leased{}} },
	Step: func(state, input, _ any) []any {
		s, l := state.(leased), input.(Lease)
		next, fits := s.after(l)
		switch {
		case l.Outcome == Done && fits:
			return []any{next}
		case l.Outcome == Done || l.Outcome == Refused && fits:
			return nil
		case l.Outcome == Unknown && fits && next != s:
			return []any{s, next}
		}
		return []any{s}
	},
	Equal:             func(a, b any) bool { return a == b },
	DescribeOperation: func(input, _ any) string { return input.(Lease).String() },
	DescribeState:     func(s any) string { return s.(leased).String() },
}

// after is the state that an operation leads to, and whether it is in order at all.
func (s leased) after(l Lease) (leased, bool) {
	mine := s.attempt == l.Attempt && s.holder == l.Holder
	switch l.Kind {
	case Take:
		return leased{l.Attempt, l.Holder, true, false}, !s.active && l.Attempt > s.attempt
	case Complete:
		return leased{l.Attempt, l.Holder, false, true}, mine && (s.active || s.completed)
	}
	return leased{l.Attempt, s.holder, false, false}, s.attempt == l.Attempt && s.active
}
