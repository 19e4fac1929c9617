// Package literal fills a guard by hand.
package literal

import "github.com/forgeyard/forgeyard/cluster"

// Guard is forged.
var Guard = cluster.RoleGuard{nil} // want: implicit assignment to unexported field cell
