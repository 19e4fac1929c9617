// Package mint calls what mints guards inside the Service.
package mint

import "github.com/forgeyard/forgeyard/cluster"

// Guard asks a Service for a guard that no view gives.
func Guard(s *cluster.Service) {
	s.seat(1).mint() // want: s.seat undefined
}
