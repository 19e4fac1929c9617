// The checks, pure: committed view and database facts in, findings out.

package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/forgeyard/forgeyard/cluster/exclusive"
	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/fsm"
)

// Facts is what the database knows of coordination.
type Facts struct {
	Epochs map[fsm.Role]health.StoredEpochs
	// Locks are the granted advisory locks of role fences (class 0x46590001).
	Locks []HeldLock
	// StaleDispatches counts undelivered dispatches whose stamp is below the
	// fence of SchedulerLeader.
	StaleDispatches int
	// Maintenance is what the database records of the maintenance state (§132);
	// nil when it records none.
	Maintenance *RecordedMaintenance
}

// HeldLock is a session that holds the advisory lock of a role's fence.
type HeldLock struct {
	Role fsm.Role
	PID  int
	Held time.Duration // age of its transaction
}

// RecordedMaintenance is the newest maintenance state that the database records.
type RecordedMaintenance struct {
	State fsm.Maintenance
	Epoch fsm.Epoch
}

// LockGrace is how long a transaction may hold a role's lock before it is
// looked at: fenced transactions are single round trips.
const LockGrace = 5 * time.Second

// checkView finds what the committed view alone tells.
func checkView(v fsm.View) []Finding {
	var found []Finding
	for _, g := range v.Roles {
		m, member := v.Member(g.Owner)
		if !g.Vacant() && (!member || m.Incarnation != g.Incarnation || m.State == fsm.Leaving) {
			found = append(found, Finding{Check: RoleOwner, Subject: g.Role.String(), Code: CodeRoleOwner,
				Message: fmt.Sprintf("%s epoch %d is owned by node %s, incarnation %s, which leaves or is no member", g.Role, g.Epoch, g.Owner, g.Incarnation)})
		}
	}
	for _, s := range fsm.Scopes() {
		if state, x := exclusive.StateOf(v, s); state == exclusive.Unknown {
			found = append(found, Finding{Check: Exclusive, Subject: s.String(), Code: CodeExclusive,
				Message: fmt.Sprintf("%s epoch %d was abandoned by node %s; what it did is unknown until its successor has inspected it", s, x.Epoch, x.Owner)})
		}
	}
	return found
}

// checkDatabase finds where the database and the view disagree. The view must
// have been read after the facts.
func checkDatabase(v fsm.View, f Facts) []Finding {
	found := checkLocks(v, f)
	g := v.Role(fsm.SchedulerLeader)
	if f.StaleDispatches > 0 && !g.Vacant() && f.raised(v, fsm.SchedulerLeader) {
		found = append(found, Finding{Check: Dispatch, Subject: g.Role.String(), Code: CodeDispatch,
			Message: fmt.Sprintf("%d undelivered dispatches carry an epoch below %d", f.StaleDispatches, g.Epoch)})
	}
	if m := f.Maintenance; m != nil && (m.State != v.Maintenance || m.Epoch != v.MaintenanceEpoch) {
		found = append(found, Finding{Check: Maintenance, Subject: v.Maintenance.String(), Code: CodeMaintenance,
			Message: fmt.Sprintf("the database records %s, epoch %d; committed is %s, epoch %d", m.State, m.Epoch, v.Maintenance, v.MaintenanceEpoch)})
	}
	for _, c := range health.CheckEpochs(v, f.Epochs) {
		found = append(found, Finding{Check: Epochs, Subject: c.Role.String(), Code: c.Code, Message: c.Message})
	}
	return found
}

// raised reports whether the role's fence has come to its committed epoch.
func (f Facts) raised(v fsm.View, r fsm.Role) bool {
	return f.Epochs[r].Fence == health.Stamp{Generation: v.Generation, Epoch: v.Role(r).Epoch}
}

// checkLocks finds sessions that hold a role's lock for long although the role
// is vacant or its fence is not the current one: the next owner waits for them.
func checkLocks(v fsm.View, f Facts) []Finding {
	byRole := map[fsm.Role][]HeldLock{}
	for _, l := range f.Locks {
		if l.Held > LockGrace && (v.Role(l.Role).Vacant() || !f.raised(v, l.Role)) {
			byRole[l.Role] = append(byRole[l.Role], l)
		}
	}
	var found []Finding
	for role, locks := range byRole {
		oldest := slices.MaxFunc(locks, func(a, b HeldLock) int { return cmp.Compare(a.Held, b.Held) })
		found = append(found, Finding{Check: Lock, Subject: role.String(), Code: CodeLock,
			Message: fmt.Sprintf("%d sessions hold the lock of %s without its current epoch; the oldest is backend %d, for %s",
				len(locks), role, oldest.PID, oldest.Held.Round(time.Second))})
	}
	slices.SortFunc(found, func(a, b Finding) int { return cmp.Compare(a.Subject, b.Subject) })
	return found
}
