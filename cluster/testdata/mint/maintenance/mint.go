// Package maintenance fills a maintenance guard by hand.
package maintenance

import "github.com/forgeyard/forgeyard/cluster"

// Guard is forged.
var Guard = cluster.MaintenanceGuard{act: cluster.RemoveVoter} // want: cannot refer to unexported field act
