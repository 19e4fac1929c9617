// Package allowed uses guards as every package may: it receives, copies and checks them.
package allowed

import "github.com/forgeyard/forgeyard/cluster"

// Write takes a guard as every mutating function does.
func Write(g cluster.RoleGuard) error {
	held := g
	return held.Check()
}
