// An agent that links anew while what it said by the link before is still being written down.

package runner_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// TestAcceptanceDuringRelinkIsOfferedAgain: the acceptance of a lease commits after
// its agent has begun to register elsewhere. Its Start goes to a link that is no more,
// so the lease is offered again by the new one, at once and not when its time is over.
func TestAcceptanceDuringRelinkIsOfferedAgain(t *testing.T) {
	p := newPlane(t)
	p.daemon("d1")
	p.daemon("d2")
	_, err := p.super.Exec(t.Context(), `
CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NEW; END $$;
CREATE TRIGGER hold BEFORE UPDATE ON forge.dispatch FOR EACH ROW WHEN (OLD.state = 'open' AND NEW.state = 'delivered') EXECUTE FUNCTION public.hold();`)
	require.NoError(t, err)
	first := p.speak("a", "d1")
	lease := p.lease("a", nil)
	await(first, func(m runner.Message) *runner.Offer { return m.Offer })
	_, err = p.super.Exec(t.Context(), `SELECT pg_advisory_lock(4711)`)
	require.NoError(t, err)
	first.say(runner.Message{Answer: &runner.Answer{Lease: lease, Verdict: runner.Accepted}})
	p.waits()

	link, err := p.net.Dialer("a").Dial(t.Context(), "d2")
	require.NoError(t, err)
	t.Cleanup(func() { _ = link.Close() })
	second := &spoken{plane: p, Link: link, id: "a"}
	second.say(runner.Message{Hello: &runner.Hello{Protocol: runner.ProtocolVersion, Session: "s-a", Slots: 100}})
	require.Eventually(t, func() bool {
		return one[bool](p, `SELECT (SELECT count(*) FROM pg_locks WHERE NOT granted) > 1 OR EXISTS (SELECT FROM forge.agents WHERE node = 'd2')`)
	}, soon, time.Millisecond, "it neither waits nor is registered")
	_, err = p.super.Exec(context.WithoutCancel(t.Context()), `SELECT pg_advisory_unlock(4711)`)
	require.NoError(t, err)
	require.True(t, second.accept(lease))
}
