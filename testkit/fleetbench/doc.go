// Package fleetbench measures a fleet of real processes: how long a failover
// takes and of what it consists, and what an idle daemon costs. It asserts nothing.
package fleetbench
