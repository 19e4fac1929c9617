// Package testkit holds the harnesses: a shared PostgreSQL, an in-memory network,
// a fleet in a synctest bubble, a fleet of real processes, and the checkers.
package testkit
