// Package elections watches fleets of real processes with early election on,
// under faults that must cost no term and no epoch of a role, or no more than
// the crashes that they contain. `make chaos` runs it.
//
// Terms, epochs, leaders and campaigns are all that these fleets are held against:
// nothing looks at what they did to rows and jobs, so their time does not count
// as that of scenarios whose fleets are judged as a whole (record.Suite.Broken).
package elections
