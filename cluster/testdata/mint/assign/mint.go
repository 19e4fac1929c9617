// Package assign moves the cell of one guard into another.
package assign

import "github.com/forgeyard/forgeyard/cluster"

// Revive gives a lost guard the life of another.
func Revive(lost, live cluster.RoleGuard) cluster.RoleGuard {
	lost.cell = live.cell // want: lost.cell undefined (cannot refer to unexported field cell)
	return lost
}
