// The highest stored epochs, and that reading them costs nothing for ended rows.

package store

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

// ended is leases as they are after a long time, all ended but one. It is run
// past triggers and foreign keys, so that it says nothing of jobs and agents.
const ended = `
	INSERT INTO forge.leases (job_id, attempt, agent_id, epoch, generation, expires_at, state, ended_at, outcome)
		SELECT lpad(n::text, 26, '0'), 1, 'agent', 3, 1, now(), 'done', now(), 'succeeded' FROM generate_series(1, 5000) n;
	INSERT INTO forge.leases (job_id, attempt, agent_id, epoch, generation, expires_at) VALUES (repeat('j', 26), 1, 'agent', 4, 1, now());
	INSERT INTO forge.dispatch (lease_id, agent_id, epoch, generation, state, delivered_at) SELECT id, agent_id, epoch, generation, 'delivered', now() FROM forge.leases;
	ANALYZE`

func TestHighestEpochs(t *testing.T) {
	db := pgtest.New(t)
	s := open(t, db)
	stored := func() map[fsm.Role]Stored {
		t.Helper()
		got, err := s.HighestEpochs(t.Context())
		require.NoError(t, err)
		return got
	}
	require.Empty(t, stored(), "a new database holds none")

	super := session(t, db.Super)
	run := func(sql string) {
		t.Helper()
		_, err := super.Exec(t.Context(), "SET session_replication_role = replica;"+sql, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
	}
	require.NoError(t, s.raise(t.Context(), at(5, "a")))
	other := at(8, "b")
	other.role = int16(fsm.ReleaseCoordinator)
	require.NoError(t, s.raise(t.Context(), other))
	run(ended)
	require.Equal(t, map[fsm.Role]Stored{
		fsm.SchedulerLeader:    {Fence: Stamp{1, 5}, Rows: Stamp{1, 4}},
		fsm.ReleaseCoordinator: {Fence: Stamp{1, 8}},
	}, stored())

	// Rows above the fence, each place in turn: a second fleet, or a restored backup.
	for _, step := range []struct {
		sql  string
		want Stamp
	}{
		{"UPDATE forge.tick SET generation = 1, epoch = 6", Stamp{1, 6}},
		{"UPDATE forge.dispatch SET epoch = 7, state = 'open', delivered_at = NULL WHERE epoch = 4", Stamp{1, 7}},
		{"UPDATE forge.leases SET epoch = 9 WHERE state = 'active'", Stamp{1, 9}},
		{"UPDATE forge.tick SET generation = 2, epoch = 1", Stamp{2, 1}},
	} {
		run(step.sql)
		got := stored()[fsm.SchedulerLeader]
		require.Equal(t, Stored{Fence: Stamp{1, 5}, Rows: step.want}, got, step.sql)
		require.Equal(t, step.want, got.Highest())
	}
	require.NoError(t, s.raise(t.Context(), authority{role: 1, generation: 3, epoch: 1, owner: "c", incarnation: "c-1"}))
	require.Equal(t, Stamp{3, 1}, stored()[fsm.SchedulerLeader].Highest(), "the generation is compared first")
}

// The read must not walk the ended rows, however many there are.
func TestHighestEpochsReadNoEndedRows(t *testing.T) {
	db := pgtest.New(t)
	super := session(t, db.Super)
	_, err := super.Exec(t.Context(), "SET session_replication_role = replica;"+ended, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	rows, err := super.Query(t.Context(), "EXPLAIN "+epochsSQL)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	plan := strings.Join(lines, "\n")
	require.NotContains(t, plan, "Seq Scan on leases", plan)
	require.NotContains(t, plan, "Seq Scan on dispatch", plan)
}
