// Package keyed fills a guard by field name.
package keyed

import "github.com/forgeyard/forgeyard/cluster"

// Guard is forged.
var Guard = cluster.RoleGuard{cell: nil} // want: cannot refer to unexported field cell
