//go:build chaos

// How many sequences the state machine is compared over where time is given, kept over runs.

package fsm

import (
	"testing"

	"github.com/forgeyard/forgeyard/testkit/record"
)

// sequences is how many TestReference draws.
const sequences = 10_000

// counted begins a suite of the record of chaos runs, t being the test of all of it, and
// returns what adds the count.
func counted(t *testing.T) func(resumed int) {
	t.Helper()
	counts := record.Begin(t, "models")
	return func(resumed int) { counts.Add("a sequence with a restore in it", resumed) }
}
