//go:build chaos

// How many sequences the state machine is compared over where time is given, kept over runs.

package fsm

import (
	"testing"

	"github.com/forgeyard/forgeyard/testkit/record"
)

// sequences is how many TestReference draws.
const sequences = 10_000

// keep adds the count to the record of chaos runs. t is the whole test.
func keep(t *testing.T, resumed int) {
	t.Helper()
	record.Begin(t, "models").Add("a sequence with a restore in it", resumed)
}
