//go:build !chaos

package fsm

// sequences is how many TestReference draws where time is short.
const sequences = 500
