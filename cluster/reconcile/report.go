// What a sweep found.

// Package reconcile runs the checks of §244: where committed coordination state,
// the database and the fleet disagree. It finds and says; the owner of each
// thing puts it right: the planner moves roles, the next holder inspects an
// abandoned operation, raising a fence ends old sessions, a role's own scan
// repairs its rows.
package reconcile

import (
	"fmt"
	"time"
)

// Check names one of the checks; the set is closed, so it may be a metric label.
type Check string

// The checks of §244, and that of §243.
const (
	RoleOwner   Check = "role_owner"  // a role's owner is no process of the cluster
	Exclusive   Check = "exclusive"   // an exclusive operation was abandoned
	Lock        Check = "lock"        // a database lock is held without the current epoch
	Dispatch    Check = "dispatch"    // an undelivered dispatch carries an epoch that is over
	Maintenance Check = "maintenance" // the database records another maintenance state
	Epochs      Check = "epochs"      // the database is ahead of the committed epochs
)

// Checks returns all of them, in the order in which they run.
func Checks() []Check { return []Check{RoleOwner, Exclusive, Lock, Dispatch, Maintenance, Epochs} }

// Finding is one disagreement. Two sweeps that meet the same one give it the
// same Check and Subject.
type Finding struct {
	Check   Check     `json:"check"`
	Subject string    `json:"subject"` // the role or scope
	Code    string    `json:"code"`    // FY-…, see `forgeyard explain`
	Message string    `json:"message"`
	Since   time.Time `json:"since"` // of the first sweep that met it
	// Confirmed: two sweeps in a row met it. One sweep alone may have looked
	// while a role was just moving.
	Confirmed bool `json:"confirmed"`
}

// The codes of findings.
const (
	CodeRoleOwner   = "FY-REC-001"
	CodeExclusive   = "FY-REC-002"
	CodeLock        = "FY-REC-003"
	CodeDispatch    = "FY-REC-004"
	CodeMaintenance = "FY-REC-005"
)

// Report is one sweep.
type Report struct {
	At       time.Time `json:"at"`
	Term     uint64    `json:"term"` // the leadership under which it ran
	Findings []Finding `json:"findings"`
	// Skipped says why the checks against the database did not run; empty when they did.
	Skipped string `json:"skipped,omitempty"`
}

// String is one line for an operator.
func (r Report) String() string {
	s := fmt.Sprintf("term %d: %d findings", r.Term, len(r.Findings))
	if len(r.Findings) == 1 {
		s = fmt.Sprintf("term %d: 1 finding (%s %s)", r.Term, r.Findings[0].Check, r.Findings[0].Subject)
	}
	if r.Skipped != "" {
		s += "; without the database: " + r.Skipped
	}
	return s
}
