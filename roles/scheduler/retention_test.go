// What retention removes, what it keeps, and what it tells of it.

package scheduler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRetention shows what goes and what stays: runs that ended long ago go with
// everything of theirs, in bounded batches; a run with one job that has not ended
// keeps all, and so does one that ended of late; orders and events have ages of their own.
func TestRetention(t *testing.T) {
	p := newPlane(t, Config{Tick: time.Hour, Retention: Retention{Batch: 2, Artifacts: time.Hour}})
	g := p.lead()
	p.agent("a", 100)
	for _, job := range []string{"1a", "1b", "2a", "2b", "3a", "4a"} {
		p.job(run(int(job[0]-'0')), job, "default")
	}
	require.Equal(t, 6, p.batch(g))
	for _, l := range all[string](p, activeLeases) {
		p.exec(`INSERT INTO forge.log_chunks (lease_id, start, length, digest) VALUES ($1::text::uuid, 0, 1, decode(repeat('00', 32), 'hex'))`, l)
		p.exec(`INSERT INTO forge.artifacts (lease_id, name, run_id, job_id, path, digest, size)
			SELECT l.id, 'out', j.run_id, j.id, 'out', decode(repeat('00', 32), 'hex'), 1 FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id WHERE l.id = $1::text::uuid`, l)
	}
	running := p.leaseOf("2b")
	for _, job := range []string{"1a", "1b", "2a", "3a", "4a"} {
		p.complete(p.leaseOf(job))
	}
	p.exec(`SET session_replication_role = replica`)
	p.exec(`UPDATE forge.dispatch SET state = 'delivered', delivered_at = now()`)
	passed := func() bool { return one[bool](p, `SELECT passed_at IS NOT NULL FROM forge.retention`) }
	pass := func() removed {
		t.Helper()
		for range 20 {
			next, err := p.prune(t.Context(), g)
			require.NoError(t, err)
			if next == p.cfg.Retention.Every {
				return one[removed](p, `SELECT removed FROM forge.retention`)
			}
			require.Equal(t, p.cfg.Retention.Pause, next)
		}
		require.Fail(t, "a pass has no end")
		return removed{}
	}
	p.exec(`INSERT INTO coordination.events (id, kind, data, seen_at) SELECT 'e' || n, 'k', '{}', coordination.clock() - n * interval '8 d' FROM generate_series(0, 8) n`)
	p.exec(`INSERT INTO forge.collections (at, node, report) SELECT coordination.clock() - n * interval '8 d', 'node', '{}' FROM generate_series(0, 3) n`)
	require.False(t, passed())
	n := pass()
	require.True(t, passed())
	require.Equal(t, removed{Facts: 5}, n, "all else is young")
	require.Equal(t, []string{"e0", "e1", "e2", "e3"}, all[string](p, `SELECT id FROM coordination.events ORDER BY id`))

	const long = `interval '31 d'`
	p.exec(`UPDATE forge.runs SET submitted_at = submitted_at - ` + long)
	p.exec(`UPDATE forge.jobs SET finished_at = finished_at - ` + long + ` WHERE name <> '4a'`)
	p.exec(`UPDATE forge.dispatch SET issued_at = issued_at - interval '2 h'`)
	p.exec(`UPDATE forge.artifacts SET at = at - interval '2 h'`)
	p.exec(`UPDATE forge.outbox SET at = at - interval '4 d' WHERE kind <> 'job.succeeded'`)
	p.exec(`UPDATE forge.collections SET at = at - ` + long)
	p.exec(`UPDATE coordination.events SET seen_at = seen_at - interval '1 y'`)
	n = pass()
	require.Equal(t, 4, one[int](p, `SELECT count(*) FROM coordination.events`), "nobody has looked at the view for long: it may still show them")
	require.Equal(t, 1, one[int](p, `SELECT count(*) FROM forge.collections`), "the last one is shown")
	require.Equal(t, []string{"2a succeeded", "2b leased", "4a succeeded"}, p.states())
	require.Equal(t, []string{run(2), run(4)}, all[string](p, `SELECT id FROM forge.runs ORDER BY id`))
	require.Equal(t, 3, one[int](p, `SELECT count(*) FROM forge.leases`))
	require.Equal(t, 3, one[int](p, `SELECT count(*) FROM forge.log_chunks`))
	require.Equal(t, []string{running}, all[string](p, `SELECT lease_id::text FROM forge.dispatch`), "it is opened again when its agent does not know of it")
	require.Equal(t, []string{"2a", "2b"}, all[string](p, `SELECT j.name FROM forge.artifacts a JOIN forge.jobs j ON j.id = a.job_id ORDER BY 1`),
		"the live job may need them; the young run's are too old by their own age")
	require.Equal(t, []string{"job.succeeded"}, all[string](p, `SELECT DISTINCT kind FROM forge.outbox`))
	require.Equal(t, removed{Runs: 2, Jobs: 3, Leases: 3, Dispatch: 5, Outbox: 12, LogChunks: 3, Artifacts: 4, Facts: 5, Garbage: 3}, n)
}
