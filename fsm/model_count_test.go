//go:build !chaos

// How many sequences the state machine is compared over in the ordinary test.

package fsm

// sequences is how many TestReference draws where time is short.
const sequences = 500
