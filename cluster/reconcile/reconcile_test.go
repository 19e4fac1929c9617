// One case for each check, and what a sweep does with what it finds.

package reconcile

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/local"
	"github.com/forgeyard/forgeyard/fsm"
)

// fleet is a view of two members, the first of which owns SchedulerLeader under epoch 17.
func fleet() fsm.View {
	m := fsm.Member{Node: cluster.NewNodeID(), Incarnation: cluster.NewIncarnationID(), Role: fsm.Voter, State: fsm.Active}
	o := fsm.Member{Node: cluster.NewNodeID(), Incarnation: cluster.NewIncarnationID(), Role: fsm.Voter, State: fsm.Active}
	return fsm.View{
		Generation: 1, Epoch: 20, Maintenance: fsm.Normal, Members: []fsm.Member{m, o},
		Roles: []fsm.RoleGrant{{Role: fsm.SchedulerLeader, Epoch: 17, Owner: m.Node, Incarnation: m.Incarnation},
			{Role: fsm.ReleaseCoordinator, Epoch: 12}},
	}
}

// sound is what a database in step with fleet holds.
func sound() Facts {
	return Facts{Epochs: map[fsm.Role]health.StoredEpochs{
		fsm.SchedulerLeader:    {Fence: health.Stamp{Generation: 1, Epoch: 17}, Rows: health.Stamp{Generation: 1, Epoch: 17}},
		fsm.ReleaseCoordinator: {Fence: health.Stamp{Generation: 1, Epoch: 12}},
	}, Maintenance: &RecordedMaintenance{State: fsm.Normal}, Locks: []HeldLock{{Role: fsm.SchedulerLeader, PID: 7, Held: time.Minute}}}
}

func Test(t *testing.T) {
	stale := func(epoch fsm.Epoch) health.StoredEpochs {
		return health.StoredEpochs{Fence: health.Stamp{Generation: 1, Epoch: epoch}}
	}
	for name, c := range map[string]struct {
		disturb func(v *fsm.View, f *Facts)
		check   Check // empty: nothing is found
		subject string
	}{
		"in step":            {func(*fsm.View, *Facts) {}, "", ""},
		"role_owner_removed": {func(v *fsm.View, _ *Facts) { v.Members = v.Members[1:] }, RoleOwner, "SchedulerLeader"},
		"role_owner_leaves":  {func(v *fsm.View, _ *Facts) { v.Members[0].State = fsm.Leaving }, RoleOwner, "SchedulerLeader"},
		"role_owner_restarted": {func(v *fsm.View, _ *Facts) { v.Members[0].Incarnation = cluster.NewIncarnationID() },
			RoleOwner, "SchedulerLeader"},
		"held_exclusive": {func(v *fsm.View, _ *Facts) {
			v.Exclusive = []fsm.ExclusiveLease{{Scope: fsm.GlobalGcCoordination, Owner: v.Members[1].Node, Incarnation: v.Members[1].Incarnation, Epoch: 19}}
		}, "", ""},
		"stale_exclusive": {func(v *fsm.View, _ *Facts) {
			v.Exclusive = []fsm.ExclusiveLease{{Scope: fsm.GlobalGcCoordination, Owner: v.Members[1].Node, Incarnation: cluster.NewIncarnationID(), Epoch: 19}}
		}, Exclusive, "GlobalGcCoordination"},
		"db_lock_stale_epoch": {func(_ *fsm.View, f *Facts) {
			f.Epochs[fsm.SchedulerLeader] = stale(16)
		}, Lock, "SchedulerLeader"},
		"db_lock_of_a_vacant_role": {func(_ *fsm.View, f *Facts) {
			f.Locks = append(f.Locks, HeldLock{Role: fsm.ReleaseCoordinator, PID: 8, Held: time.Minute})
		}, Lock, "ReleaseCoordinator"},
		"db_lock_of_a_moment": {func(_ *fsm.View, f *Facts) {
			f.Epochs[fsm.SchedulerLeader] = stale(16)
			f.Locks[0].Held = LockGrace
		}, "", ""},
		"stale_dispatch": {func(_ *fsm.View, f *Facts) { f.StaleDispatches = 3 }, Dispatch, "SchedulerLeader"},
		"stale_dispatch_before_the_fence": {func(_ *fsm.View, f *Facts) {
			f.StaleDispatches, f.Locks = 3, nil
			f.Epochs[fsm.SchedulerLeader] = stale(16)
		}, "", ""},
		"maintenance_mismatch": {func(v *fsm.View, _ *Facts) { v.Maintenance, v.MaintenanceEpoch = fsm.ReadOnly, 18 }, Maintenance, "ReadOnly"},
		"maintenance_epoch":    {func(v *fsm.View, _ *Facts) { v.MaintenanceEpoch = 18 }, Maintenance, "Normal"},
		"maintenance_unrecorded": {func(v *fsm.View, f *Facts) {
			f.Maintenance, v.Maintenance, v.MaintenanceEpoch = nil, fsm.ReadOnly, 18
		}, "", ""},
		"db_epoch": {func(_ *fsm.View, f *Facts) {
			f.Epochs[fsm.ReleaseCoordinator] = stale(13)
		}, Epochs, "ReleaseCoordinator"},
	} {
		t.Run(name, func(t *testing.T) {
			v, f := fleet(), sound()
			c.disturb(&v, &f)
			found := append(checkView(v), checkDatabase(v, f)...)
			if c.check == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Equal(t, c.check, found[0].Check)
			require.Equal(t, c.subject, found[0].Subject)
			require.NotEmpty(t, found[0].Code)
			require.NotEmpty(t, found[0].Message)
			require.Contains(t, Checks(), found[0].Check)
		})
	}
}

// database answers what a test sets.
type database struct {
	facts Facts
	err   error
}

func (d *database) CoordinationFacts(context.Context) (Facts, error) { return d.facts, d.err }

// lagging shows an old view until somebody asks for a proved one.
type lagging struct {
	*local.Backend
	old   cluster.View
	proof error
}

func (l *lagging) View() cluster.View { return l.old }

func (l *lagging) LinearizableView(ctx context.Context) (cluster.View, error) {
	if l.proof != nil {
		return cluster.View{}, l.proof
	}
	return l.Backend.LinearizableView(ctx)
}

func engine(t *testing.T) *local.Backend {
	t.Helper()
	b, err := local.Open(local.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func propose(t *testing.T, b *local.Backend, c fsm.Command) {
	t.Helper()
	_, err := b.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: c})
	require.NoError(t, err)
}

// TestSweepLooksTwice: one sight of a finding says nothing aloud, the second
// does, its end is told, and a silent database skips its checks.
func TestSweepLooksTwice(t *testing.T) {
	b := engine(t)
	db := &database{}
	var log bytes.Buffer
	r := New(Config{Coordination: b, Database: db, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	_, swept := r.Last()
	require.False(t, swept)
	sweep := func() Report {
		t.Helper()
		report, err := r.Sweep(t.Context())
		require.NoError(t, err)
		last, _ := r.Last()
		require.Equal(t, report, last)
		return report
	}
	require.Empty(t, sweep().Findings)

	db.facts.Epochs = map[fsm.Role]health.StoredEpochs{fsm.SchedulerLeader: {Fence: health.Stamp{Generation: 1, Epoch: 5}}}
	first := sweep()
	require.Len(t, first.Findings, 1)
	require.False(t, first.Findings[0].Confirmed)
	require.Empty(t, log.String())
	for range 2 {
		again := sweep()
		require.True(t, again.Findings[0].Confirmed)
		require.Equal(t, first.Findings[0].Since, again.Findings[0].Since)
	}
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("disagrees")), "said once")
	require.Contains(t, log.String(), cluster.CodeDatabaseAhead)

	db.facts = Facts{}
	require.Empty(t, sweep().Findings)
	require.Contains(t, log.String(), "agrees again")

	db.err = errors.New("connection refused")
	report := sweep()
	require.Equal(t, "connection refused", report.Skipped)
	require.Contains(t, report.String(), "without the database: connection refused")
}

// TestSweepProvesWhatItFinds: an old cached view makes no finding, and without
// a proof nothing is reported.
func TestSweepProvesWhatItFinds(t *testing.T) {
	b := engine(t)
	self := b.Self()
	l := &lagging{Backend: b, old: b.View()}
	propose(t, b, fsm.BumpEpoch{Term: 1, Node: self.Node, Incarnation: self.Incarnation})
	propose(t, b, fsm.AssignRole{Leader: b.View().LeaderEpoch, Role: fsm.SchedulerLeader, Owner: self.Node, Incarnation: self.Incarnation})
	epoch := b.View().Role(fsm.SchedulerLeader).Epoch
	db := &database{facts: Facts{Epochs: map[fsm.Role]health.StoredEpochs{fsm.SchedulerLeader: {Fence: health.Stamp{Generation: 1, Epoch: epoch}}}}}
	r := New(Config{Coordination: l, Database: db})
	report, err := r.Sweep(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.Equal(t, "term 1: 0 findings", report.String())

	l.proof = cluster.ErrNoQuorum
	_, err = r.Sweep(t.Context())
	require.ErrorIs(t, err, cluster.ErrNoQuorum)
}

func TestOnlyTheLeaderSweeps(t *testing.T) {
	b, err := local.Open(local.Config{})
	require.NoError(t, err)
	require.NoError(t, b.Close())
	_, err = New(Config{Coordination: b}).Sweep(t.Context())
	require.ErrorIs(t, err, cluster.ErrNotLeader)
}
