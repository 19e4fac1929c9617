// Package events carries news: wake-ups between the daemons of a fleet, and the outbox of what happened to whoever
// follows it. Nothing in it decides anything: a lost wake-up costs the time to the next poll, and an event is read from
// the row that the transaction which made it wrote.
//
// This file: what a wake-up is about.
package events

// The topics of wake-ups. Whoever is woken reads the database; a topic only says who should.
const (
	Work    = "work"    // something may be leasable, due, or to be settled: the scheduler
	Orders  = "orders"  // dispatch rows were made: the daemons that hold agents
	Cancels = "cancels" // an end was asked for: the daemons that hold agents, and the scheduler
	Logs    = "logs"    // bytes of a log were stored: whoever follows one
	Happens = "events"  // the outbox grew; every topic but Logs says so too
)

// Topics lists every topic.
func Topics() []string { return []string{Work, Orders, Cancels, Logs, Happens} }
