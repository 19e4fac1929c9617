// What agents say, through a link under the test's control: completions in batches, needs, retries, cancellation.

package runner_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// spoken is an agent's end of a link, without an agent behind it.
type spoken struct {
	*plane
	runner.Link
	id      string
	welcome runner.Welcome

	logBytes int64 // what completions say
}

func (p *plane) speak(agent, daemon string) *spoken {
	p.Helper()
	l, err := p.net.Dialer(agent).Dial(p.Context(), daemon)
	require.NoError(p, err)
	p.Cleanup(func() { _ = l.Close() })
	s := &spoken{plane: p, Link: l, id: agent}
	s.say(runner.Message{Hello: &runner.Hello{Protocol: runner.ProtocolVersion, Session: "s-" + agent, Slots: 100}})
	s.welcome = *await(s, func(m runner.Message) *runner.Welcome { return m.Welcome })
	return s
}

func (s *spoken) say(m runner.Message) {
	s.Helper()
	require.NoError(s, s.Send(s.Context(), m))
}

// await reads messages until one is picked.
func await[T any](s *spoken, pick func(runner.Message) *T) *T {
	s.Helper()
	ctx, done := context.WithTimeout(s.Context(), soon)
	defer done()
	for {
		m, err := s.Receive(ctx)
		require.NoError(s, err)
		if v := pick(m); v != nil {
			return v
		}
	}
}

// accept answers the offer of a lease and waits for its start.
func (s *spoken) accept(lease string) bool {
	s.Helper()
	await(s, func(m runner.Message) *runner.Offer {
		if m.Offer == nil || m.Offer.Lease != lease {
			return nil
		}
		return m.Offer
	})
	return s.answer(lease)
}

func (s *spoken) answer(lease string) bool {
	s.Helper()
	s.say(runner.Message{Answer: &runner.Answer{Lease: lease, Verdict: runner.Accepted}})
	return await(s, func(m runner.Message) *runner.Start { return m.Start }).Granted
}

// complete reports outcomes, all sent before any answer is read, and returns how many were accepted.
func (s *spoken) complete(of map[string]runner.Outcome) int {
	s.Helper()
	for lease, o := range of {
		s.say(runner.Message{Complete: &runner.Complete{Lease: lease, Outcome: o, Reason: "because", LogBytes: s.logBytes}})
	}
	n := 0
	for range of {
		if await(s, func(m runner.Message) *runner.Completed { return m.Completed }).Accepted {
			n++
		}
	}
	return n
}

func (s *spoken) beat(seq uint64, of ...runner.Progress) runner.Pulse {
	s.Helper()
	s.say(runner.Message{Beat: &runner.Beat{Seq: seq, Leases: of}})
	return *await(s, func(m runner.Message) *runner.Pulse { return m.Pulse })
}

func (p *plane) submit(jobs ...runner.JobSpec) string {
	p.Helper()
	for i := range jobs {
		jobs[i].Argv = []string{"true"}
	}
	id, _, err := runner.Submit(p.Context(), p.store, runner.RunSpec{Name: "run", Jobs: jobs}, "")
	require.NoError(p, err)
	return id
}

// leaseJob leases one job of a run as the scheduler would.
func (p *plane) leaseJob(run, job, agent string) string {
	p.Helper()
	p.fenced(`WITH j AS (UPDATE forge.jobs SET state = 'leased', attempt = attempt + 1 WHERE run_id = $1 AND name = $2 AND state IN ('queued', 'backoff', 'blocked') RETURNING id, attempt),
 l AS (INSERT INTO forge.leases (job_id, attempt, agent_id, expires_at) SELECT id, attempt, $3, coordination.clock() + interval '20 s' FROM j RETURNING id, agent_id)
 INSERT INTO forge.dispatch (lease_id, agent_id) SELECT id, agent_id FROM l`, run, job, agent)
	return one[string](p, `SELECT l.id::text FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id WHERE j.run_id = $1 AND j.name = $2 AND l.state = 'active'`, run, job)
}

// stateOf is a job as "state unmet failures reason".
func (p *plane) stateOf(run, job string) string {
	p.Helper()
	return one[string](p, `SELECT concat_ws(' ', state, unmet, failures, reason) FROM forge.jobs WHERE run_id = $1 AND name = $2`, run, job)
}

// TestNeedsAreSettled: each end of a job tells those that need it, once, whether
// they end together or apart, and whether it is reported twice.
func TestNeedsAreSettled(t *testing.T) {
	p := newPlane(t)
	p.daemon("d1")
	s := p.speak("a", "d1")
	run := p.submit(runner.JobSpec{Name: "all", Needs: []string{"x", "y", "z"}}, runner.JobSpec{Name: "x"}, runner.JobSpec{Name: "y"}, runner.JobSpec{Name: "z"},
		runner.JobSpec{Name: "bad"}, runner.JobSpec{Name: "one", Needs: []string{"bad", "x"}}, runner.JobSpec{Name: "last", Needs: []string{"all"}})
	require.Equal(t, "blocked 3 0 ", p.stateOf(run, "all"))
	x, y, z, bad := p.leaseJob(run, "x", "a"), p.leaseJob(run, "y", "a"), p.leaseJob(run, "z", "a"), p.leaseJob(run, "bad", "a")

	require.Equal(t, 2, s.complete(map[string]runner.Outcome{x: runner.Succeeded, y: runner.Succeeded}))
	require.Equal(t, "blocked 1 0 ", p.stateOf(run, "all"))
	require.Equal(t, "blocked 1 0 ", p.stateOf(run, "one"))
	require.Equal(t, 1, s.complete(map[string]runner.Outcome{y: runner.Succeeded}), "a repeated completion is accepted")
	require.Equal(t, "blocked 1 0 ", p.stateOf(run, "all"), "and counts once")
	require.Equal(t, 2, s.complete(map[string]runner.Outcome{z: runner.Succeeded, bad: runner.TimedOut}))
	require.Equal(t, "blocked 0 0 ", p.stateOf(run, "all"))
	require.Equal(t, "blocked -1 0 ", p.stateOf(run, "one"))
	require.Equal(t, "blocked 1 0 ", p.stateOf(run, "last"))
	require.Equal(t, "failed 0 1 because", p.stateOf(run, "bad"))
	require.Zero(t, s.complete(map[string]runner.Outcome{"00000000-0000-0000-0000-00000000000a": runner.Succeeded}), "nobody's lease")

	other := p.speak("b", "d1")
	lease := p.leaseJob(run, "last", "a")
	require.Zero(t, other.complete(map[string]runner.Outcome{lease: runner.Succeeded}), "another agent's lease")
	require.Equal(t, "leased 1 0 ", p.stateOf(run, "last"))
}

// TestFailedAttemptsAreRepeated until the retries are used up, each time later;
// nothing that needs the job learns of it before.
func TestFailedAttemptsAreRepeated(t *testing.T) {
	p := newPlane(t)
	p.daemon("d1")
	s := p.speak("a", "d1")
	run := p.submit(runner.JobSpec{Name: "flaky", Retries: 2}, runner.JobSpec{Name: "after", Needs: []string{"flaky"}})
	for i, wait := range []time.Duration{time.Second, 2 * time.Second} {
		require.Equal(t, 1, s.complete(map[string]runner.Outcome{p.leaseJob(run, "flaky", "a"): runner.Failed}))
		require.Equal(t, fmt.Sprint("backoff 0 ", i+1, " because"), p.stateOf(run, "flaky"))
		left := one[time.Duration](p, `SELECT not_before - coordination.clock() FROM forge.jobs WHERE run_id = $1 AND name = 'flaky'`, run)
		require.InDelta(t, wait.Seconds(), left.Seconds(), 0.9)
		require.Equal(t, "blocked 1 0 ", p.stateOf(run, "after"))
	}
	require.Equal(t, 1, s.complete(map[string]runner.Outcome{p.leaseJob(run, "flaky", "a"): runner.Errored}))
	require.Equal(t, "failed 0 3 because", p.stateOf(run, "flaky"))
	require.Equal(t, "blocked -1 0 ", p.stateOf(run, "after"))
	require.True(t, one[bool](p, `SELECT not_before IS NULL AND finished_at IS NOT NULL FROM forge.jobs WHERE run_id = $1 AND name = 'flaky'`, run))
}

// TestCancelRun marks what has not ended, tells the agents by lease, and starts nothing more.
func TestCancelRun(t *testing.T) {
	p := newPlane(t)
	p.daemon("d1")
	s := p.speak("a", "d1")
	run := p.submit(runner.JobSpec{Name: "runs", Retries: 3}, runner.JobSpec{Name: "offered"}, runner.JobSpec{Name: "queued"},
		runner.JobSpec{Name: "blocked", Needs: []string{"runs"}}, runner.JobSpec{Name: "over"})
	require.Equal(t, 1, s.complete(map[string]runner.Outcome{p.leaseJob(run, "over", "a"): runner.Succeeded}))
	runs := p.leaseJob(run, "runs", "a")
	require.True(t, s.accept(runs))
	offered := p.leaseJob(run, "offered", "a")
	await(s, func(m runner.Message) *runner.Offer { return m.Offer })

	tx, err := p.super.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM forge.jobs WHERE run_id = $1 AND name IN ('queued', 'runs') FOR UPDATE`, run)
	require.NoError(t, err)
	done := make(chan int, 1)
	go func() {
		n, err := runner.CancelRun(t.Context(), p.store, run, "", "enough")
		if err != nil {
			n = -1
		}
		done <- n
	}()
	s.beat(1) // the daemon goes on while rows are held
	require.Empty(t, done, "what somebody holds is waited for")
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, 4, <-done)
	n, err := runner.CancelRun(t.Context(), p.store, run, "", "again")
	require.NoError(t, err)
	require.Zero(t, n, "asking again changes nothing")
	require.Equal(t, "queued 0 0 cancelled by anonymous: enough", p.stateOf(run, "queued"))
	require.Equal(t, "succeeded 0 0 ", p.stateOf(run, "over"))

	c := await(s, func(m runner.Message) *runner.CancelOrder { return m.Cancel })
	require.Equal(t, runs, c.Lease)
	require.False(t, s.answer(runs), "an acceptance that was repeated, and overtaken by the cancel, starts nothing")
	require.True(t, one[bool](p, `SELECT expires_at > coordination.clock() FROM forge.leases WHERE id = $1::text::uuid`, runs), "and ends no time of what runs")
	require.False(t, s.answer(offered), "an offer that crossed the cancel is not started")
	require.True(t, one[bool](p, `SELECT expires_at <= coordination.clock() FROM forge.leases WHERE id = $1::text::uuid`, offered), "and its time is over")
	require.Equal(t, 1, s.complete(map[string]runner.Outcome{runs: runner.Failed}), "it failed by itself meanwhile")
	require.Equal(t, "cancelled 0 1 cancelled by anonymous: enough", p.stateOf(run, "runs"), "and is not repeated")
	require.Equal(t, "blocked -1 0 cancelled by anonymous: enough", p.stateOf(run, "blocked"))

	_, err = runner.CancelRun(t.Context(), p.store, run, "nothing", "")
	require.ErrorContains(t, err, "no job")
	second := p.submit(runner.JobSpec{Name: "a"}, runner.JobSpec{Name: "b"})
	n, err = runner.CancelRun(t.Context(), p.store, second, "b", "")
	require.NoError(t, err)
	require.Equal(t, 1, n, "one job alone")
	require.Equal(t, "queued 0 0 ", p.stateOf(second, "a"))
}

// TestStillWorkIsNotExtended: heartbeats alone do not keep a lease whose work stands still.
func TestStillWorkIsNotExtended(t *testing.T) {
	p := newPlane(t)
	timing := quick
	timing.Still = time.Millisecond
	s := runner.NewSessions(runner.SessionsConfig{Store: p.store, Node: "d1", Timing: timing})
	p.net.Start("d1", s)
	a := p.speak("a", "d1")
	p.exec(`UPDATE forge.agents SET unaccepted = 2`)
	stuck, lively, plain := p.lease("a", nil), p.lease("a", nil), p.lease("a", nil)
	for _, lease := range []string{stuck, lively, plain} {
		a.accept(lease)
	}
	require.Zero(t, one[int](p, `SELECT unaccepted FROM forge.agents`), "an acceptance starts the count again")
	var pulse runner.Pulse
	for seq := uint64(1); seq <= runner.StillBeats; seq++ {
		require.Less(t, len(pulse.Alive)%3, 1, "all are extended at first")
		pulse = a.beat(seq, runner.Progress{Lease: stuck, Work: 7, Note: "waits"}, runner.Progress{Lease: lively, Work: seq}, runner.Progress{Lease: plain})
	}
	require.ElementsMatch(t, []string{lively, plain}, pulse.Alive)
	require.Equal(t, "waits", one[string](p, `SELECT note FROM forge.leases WHERE id = $1::text::uuid`, stuck))
	pulse = a.beat(9, runner.Progress{Lease: stuck, Work: 8})
	require.Equal(t, []string{stuck}, pulse.Alive, "it moves again in time")
}

// TestDrainReachesTheAgent, and a closing agent says so until its next hello.
func TestDrainReachesTheAgent(t *testing.T) {
	p := newPlane(t)
	p.daemon("d1")
	a := p.speak("a", "d1")
	p.exec(`UPDATE forge.agents SET drain_requested_at = now()`)
	drain := func(m runner.Message) *runner.Drain { return m.Drain }
	require.True(t, await(a, drain).On)
	p.exec(`UPDATE forge.agents SET drain_requested_at = NULL`)
	require.False(t, await(a, drain).On)
	p.exec(`UPDATE forge.agents SET drain_requested_at = now()`)
	a.say(runner.Message{Beat: &runner.Beat{Seq: 1, Closing: true}})
	require.Eventually(t, func() bool { return one[bool](p, `SELECT closing FROM forge.agents`) }, soon, time.Millisecond)
	again := p.speak("a", "d1")
	require.True(t, again.welcome.Drain)
	require.False(t, one[bool](p, `SELECT closing FROM forge.agents`))
}
