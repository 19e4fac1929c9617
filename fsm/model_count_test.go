//go:build !chaos

// How many sequences the state machine is compared over in the ordinary test.

package fsm

import "testing"

// sequences is how many TestReference draws where time is short.
const sequences = 500

// counted returns what keeps nothing: only chaos runs are counted over runs.
func counted(*testing.T) func(int) { return func(int) {} }
