// Package elections watches fleets of real processes with early election on,
// under faults that must cost no term and no epoch of a role, or no more than
// the crashes that they contain. `make chaos` runs it.
package elections
