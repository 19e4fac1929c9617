// Package convert converts a look-alike into a guard.
package convert

import "github.com/forgeyard/forgeyard/cluster"

type cell struct{}

type lookalike struct{ cell *cell }

// Guard is forged.
var Guard = cluster.RoleGuard(lookalike{&cell{}}) // want: cannot convert lookalike
