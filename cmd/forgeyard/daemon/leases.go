// How a harness makes the leases of real processes shorter.

package daemon

import (
	"fmt"
	"time"
)

// leaseEnv holds the time of a lease, such as "15s", in place of the minute that
// it has. Heartbeats shorten with it; an agent's own margin before its deadline
// does not. All daemons of a fleet need the same. It is for harnesses only, so
// it is no setting of the configuration.
const leaseEnv = "FORGEYARD_LEASE_TTL"

// beatsPerLease is how many heartbeats fit into a lease, as by default.
const beatsPerLease = 6

// shortestLease leaves an agent some time beside its margin of 5 s.
const shortestLease = 10 * time.Second

// leaseTTL reads the value of leaseEnv; zero, which means the default, when there is none.
func leaseTTL(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	ttl, err := time.ParseDuration(text)
	if err != nil || ttl < shortestLease {
		return 0, fmt.Errorf("%s: %q is no duration of at least %s", leaseEnv, text, shortestLease)
	}
	return ttl, nil
}
