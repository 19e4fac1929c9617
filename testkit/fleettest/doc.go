// Package fleettest runs scenarios that need real processes, each once: killed, paused, cut off, starved of PostgreSQL, crashed from within.
//
// Every scenario asserts what a user sees (rows, exit codes, answers) and the
// order in the daemons' traces. A time is asserted at five times its stated
// bound only; the figures themselves are the benchmarks'.
package fleettest
