// Jobs that nobody has leased: released, repeated, skipped and cancelled; and agents that accept nothing.

package scheduler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
)

func (p *plane) upkeepNow(g cluster.RoleGuard) kept {
	p.Helper()
	k, err := p.maintain(p.Context(), g)
	require.NoError(p, err)
	return k
}

// leaseOf is the active lease of a job.
func (p *plane) leaseOf(name string) string {
	p.Helper()
	return one[string](p, `SELECT l.id::text FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id WHERE j.name = $1 AND l.state = 'active'`, name)
}

// TestNeeds shows that a job is leased by the very batch that finds its needs
// succeeded, and that one whose needs cannot succeed is skipped, and what needs it too.
func TestNeeds(t *testing.T) {
	p := newPlane(t, Config{Tick: time.Hour})
	g := p.lead()
	p.agent("a", 9)
	for _, j := range [][]string{{"1"}, {"2", "1"}, {"3", "2"}, {"4", "3", "1"}, {"5"}} {
		p.job(run(1), j[0], "default", j[1:]...)
	}
	require.Equal(t, 2, p.batch(g), "what is blocked is not leased")
	p.complete(p.leaseOf("1"))
	p.exec(`UPDATE forge.jobs SET unmet = unmet - 1 WHERE '1' = ANY (needs)`) // in the completion's transaction
	require.True(t, p.upkeepNow(g).work, "the upkeep wakes the lease loop")
	require.Equal(t, 1, p.batch(g))
	require.Equal(t, []string{"1 succeeded", "2 leased", "3 blocked", "4 blocked", "5 leased"}, p.states())

	// Its last attempt is lost: 3 will never run, and so 4.
	p.exec(`UPDATE forge.jobs SET attempt_limit = 1 WHERE name = '2'`)
	p.end(p.leaseOf("2"))
	next, err := p.keep(t.Context(), g)
	require.NoError(t, err)
	require.Zero(t, next, "what needs an ended job is looked for at once")
	require.Equal(t, []string{"1 succeeded", "2 failed", "3 blocked", "4 blocked", "5 leased"}, p.states())
	require.EqualValues(t, 1, p.upkeepNow(g).skipped, "the next one along the needs")
	require.Equal(t, []string{"1 succeeded", "2 failed", "3 skipped", "4 blocked", "5 leased"}, p.states())
	require.EqualValues(t, 1, p.upkeepNow(g).skipped)
	require.Equal(t, []string{"1 succeeded", "2 failed", "3 skipped", "4 skipped", "5 leased"}, p.states())
	require.Equal(t, []string{"needs 2, which is failed", "needs 3, which is skipped"}, all[string](p, `SELECT reason FROM forge.jobs WHERE state = 'skipped' ORDER BY id`))
	require.Zero(t, p.upkeepNow(g).skipped)
}

// TestCancelOfWhatNobodyLeased shows that a cancelled job is never leased again,
// in whatever state it waited, and that what needs it is skipped unless it is cancelled too.
func TestCancelOfWhatNobodyLeased(t *testing.T) {
	p := newPlane(t, Config{Tick: time.Hour})
	g := p.lead()
	for _, j := range [][]string{{"1"}, {"2", "1"}, {"3"}, {"4", "3"}, {"5"}} {
		p.job(run(1), j[0], "default", j[1:]...)
	}
	p.agent("a", 1)
	require.Equal(t, 1, p.batch(g))
	p.fail("1", time.Hour)
	p.job(run(2), "6", "default")
	p.cancel(run(1))
	p.exec(`UPDATE forge.jobs SET cancel_requested_at = NULL WHERE name = '4'`)
	require.Equal(t, 1, p.batch(g), "the other run's")
	require.Equal(t, []string{"1 backoff", "2 blocked", "3 queued", "4 blocked", "5 queued", "6 leased"}, p.states())
	k := p.upkeepNow(g)
	require.EqualValues(t, 4, k.cancelled)
	require.EqualValues(t, 1, k.skipped)
	require.Equal(t, []string{"1 cancelled", "2 cancelled", "3 cancelled", "4 skipped", "5 cancelled", "6 leased"}, p.states())
	require.Equal(t, "cancelled before it was leased", one[string](p, `SELECT reason FROM forge.jobs WHERE name = '3'`))
	require.Zero(t, p.upkeepNow(g).cancelled)
}

// fail ends the lease of a job as a daemon does when the attempt is to be repeated.
func (p *plane) fail(name string, wait time.Duration) {
	p.Helper()
	lease := p.leaseOf(name)
	p.exec(`UPDATE forge.leases SET state = 'done', outcome = 'failed', ended_at = coordination.clock() WHERE id = $1::text::uuid`, lease)
	p.exec(`UPDATE forge.jobs SET state = 'backoff', failures = failures + 1, not_before = coordination.clock() + $2 WHERE name = $1`, name, wait)
}

// TestBackoff shows that a failed attempt is repeated when its time has come,
// and that the upkeep knows when that is.
func TestBackoff(t *testing.T) {
	p := newPlane(t, Config{Tick: time.Hour})
	g := p.lead()
	p.agent("a", 1)
	p.job(run(1), "1", "default")
	require.Equal(t, 1, p.batch(g))
	p.fail("1", time.Minute)
	require.Zero(t, p.batch(g))
	k := p.upkeepNow(g)
	due := k.due
	require.InDelta(t, time.Minute, due, float64(30*time.Second))
	require.False(t, k.work, "its time has not come")
	next, err := p.keep(t.Context(), g)
	require.NoError(t, err)
	require.LessOrEqual(t, next, due, "the loop is there in time, not after a tick of an hour")

	p.exec(`UPDATE forge.jobs SET not_before = coordination.clock() - interval '1 ms'`)
	k = p.upkeepNow(g)
	require.True(t, k.work, "the upkeep wakes the lease loop")
	require.Positive(t, k.due, "and does not ask again and again for what is the lease loop's to do")
	require.Equal(t, 1, p.batch(g))
	require.Equal(t, "leased 2", one[string](p, `SELECT state || ' ' || attempt FROM forge.jobs`))
	require.True(t, one[bool](p, `SELECT not_before IS NULL AND queued_at > (SELECT min(leased_at) FROM forge.leases) FROM forge.jobs`))
}

// TestUpkeepWakesForAllThatIsLeasable shows, for every state a job can wait in,
// that a batch finds something to do exactly when the upkeep wakes the lease loop:
// else a job of a fleet where nothing else happens waits for the loop's slowest poll.
func TestUpkeepWakesForAllThatIsLeasable(t *testing.T) {
	p := newPlane(t, Config{Tick: time.Hour})
	g := p.lead()
	p.agent("a", 9)
	fail := func(wait time.Duration) func(string) {
		return func(name string) {
			p.job(run(1), name, "default")
			require.Equal(t, 1, p.batch(g))
			p.fail(name, wait)
		}
	}
	needs := func(unmet int) func(string) {
		return func(name string) {
			p.job(run(1), name, "default", "another")
			p.exec(`UPDATE forge.jobs SET unmet = $2 WHERE name = $1`, name, unmet)
		}
	}
	for _, c := range []struct {
		name string
		wait func(name string)
		wake bool
	}{
		{"queued", func(name string) { p.job(run(1), name, "default") }, true},
		{"needs met", needs(0), true},
		{"needs not met", needs(1), false},
		{"to be repeated", fail(-time.Millisecond), true},
		{"to be repeated later", fail(time.Hour), false},
	} {
		c.wait(c.name)
		select {
		case <-p.leases.rung():
		default:
		}
		_, err := p.keep(t.Context(), g)
		require.NoError(t, err)
		rung := false
		select {
		case <-p.leases.rung():
			rung = true
		default:
		}
		require.Equal(t, c.wake, rung, c.name)
		require.Equal(t, c.wake, p.batch(g) == 1, c.name)
	}
}

// TestQuarantine shows that an agent which is heard of, but accepts nothing, is
// trusted with one lease at a time and quarantined after three rounds; one that
// is not heard of, or accepts in between, is not.
func TestQuarantine(t *testing.T) {
	p := newPlane(t, Config{Tick: time.Hour})
	g := p.lead()
	p.agent("dead loop", 2, "x")
	p.agent("gone", 2, "y")
	for i := range 8 {
		p.job(run(1), string(rune('a'+i)), "default")
	}
	p.exec(`UPDATE forge.jobs SET attempt_limit = 10, labels = CASE WHEN name < 'e' THEN '{x}'::text[] ELSE '{y}' END`)
	round := func() (made int) {
		made = p.batch(g)
		p.exec(`UPDATE forge.agents SET last_seen = coordination.clock()`)
		p.exec(`UPDATE forge.agents SET link = NULL, node = NULL WHERE id = 'gone'`)
		p.exec(`UPDATE forge.leases SET expires_at = coordination.clock() - interval '1 ms' WHERE state = 'active'`)
		p.expireNow(g)
		p.exec(`UPDATE forge.agents SET link = 'l', node = 'n' WHERE id = 'gone'`)
		return made
	}
	unaccepted := func() []int { return all[int](p, `SELECT unaccepted FROM forge.agents ORDER BY id`) }
	require.Equal(t, 4, round())
	require.Equal(t, []int{1, 0}, unaccepted(), "two leases of one round count once")
	require.Equal(t, 3, round(), "one lease at a time")
	require.Equal(t, []int{2, 0}, unaccepted())
	p.exec(`UPDATE forge.agents SET unaccepted = 0 WHERE id = 'dead loop'`) // it accepted
	for range 3 {
		require.Positive(t, round())
	}
	require.Equal(t, []int{3, 0}, unaccepted())
	require.Equal(t, "it accepted none of the last 3 leases offered to it before they expired",
		one[string](p, `SELECT quarantine_reason FROM forge.agents WHERE quarantined_at IS NOT NULL AND id = 'dead loop'`))
	require.Equal(t, 2, round(), "nothing is leased to it")
	p.exec(`UPDATE forge.agents SET quarantined_at = NULL, unaccepted = 0`)
	p.exec(`UPDATE forge.agents SET drain_requested_at = coordination.clock() WHERE id = 'gone'`)
	require.Equal(t, 2, p.batch(g), "released; the other one drains")
	require.Equal(t, []string{"dead loop"}, all[string](p, `SELECT DISTINCT agent_id FROM forge.leases WHERE state = 'active'`))
}

// TestOneOutageIsOneRound: leases that were offered while an agent could not be
// reached are one round, however many rounds of expiry end them; and where the
// agent was not heard of since, they are none, though its link is still recorded.
func TestOneOutageIsOneRound(t *testing.T) {
	p := newPlane(t, Config{Tick: time.Hour})
	g := p.lead()
	p.agent("a", 4)
	for i := range 4 {
		p.job(run(1), string(rune('a'+i)), "default")
	}
	require.Equal(t, 4, p.batch(g))
	end := func() {
		p.exec(`UPDATE forge.leases SET expires_at = coordination.clock() - interval '1 ms' WHERE id = (SELECT id FROM forge.leases WHERE state = 'active' ORDER BY id LIMIT 1)`)
		p.expireNow(g)
	}
	end()
	require.Zero(t, one[int](p, `SELECT unaccepted FROM forge.agents`), "it was not heard of")
	p.exec(`UPDATE forge.agents SET last_seen = coordination.clock()`)
	for range 3 {
		end()
	}
	require.Zero(t, one[int](p, `SELECT count(*) FROM forge.leases WHERE state = 'active'`))
	require.Equal(t, 1, one[int](p, `SELECT unaccepted FROM forge.agents`))
	require.Equal(t, 1, p.batch(g), "it must prove itself")
	p.exec(`UPDATE forge.agents SET last_seen = coordination.clock()`)
	end()
	require.Equal(t, 2, one[int](p, `SELECT unaccepted FROM forge.agents`), "the next round counts")
}
