//go:build chaos

package fsm

// sequences is how many TestReference draws.
const sequences = 10_000
