//go:build chaos

// How many sequences the state machine is compared over where time is given.

package fsm

// sequences is how many TestReference draws.
const sequences = 10_000
