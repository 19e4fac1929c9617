// Ends of links that the database could not be told of at once.

package runner_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// patchy is a database that can be away.
type patchy struct {
	runner.Database
	away   atomic.Bool
	missed atomic.Int64
}

func (p *patchy) Batch(ctx context.Context, fill func(*pgx.Batch)) error {
	if p.away.Load() {
		p.missed.Add(1)
		return errors.New("the database is away")
	}
	return p.Database.Batch(ctx, fill)
}

// TestEndOfALinkIsRecordedLater: an agent that went while its daemon could not reach
// the database looks linked, and would be leased work. The daemon tells of it as
// soon as it can, also when no agent is linked to it any more; of an agent that is
// back it tells nothing. A hello that failed meanwhile makes it forget no end.
func TestEndOfALinkIsRecordedLater(t *testing.T) {
	p := newPlane(t)
	db := &patchy{Database: p.store}
	p.daemonOver("d1", db)
	p.daemon("d2")
	linked := func(agent string) bool {
		return one[bool](p, `SELECT link IS NOT NULL FROM forge.agents WHERE id = $1`, agent)
	}
	gone := p.agent("gone", t.TempDir(), newGate(), "d1")
	dir := t.TempDir()
	back := p.agent("back", dir, newGate(), "d1")

	db.away.Store(true)
	gone.stop()
	back.stop()
	require.Eventually(t, func() bool { return db.missed.Load() >= 3 }, soon, time.Millisecond, "both ends were missed, and one was tried again")
	require.True(t, linked("gone"))
	hello, err := p.net.Dialer("gone").Dial(t.Context(), "d1") // it is refused, and the agent never comes back
	require.NoError(t, err)
	require.NoError(t, hello.Send(t.Context(), runner.Message{Hello: &runner.Hello{Protocol: runner.ProtocolVersion, Session: "next", Slots: 1}}))
	_, err = hello.Receive(t.Context())
	require.Error(t, err)
	p.agent("back", dir, newGate(), "d2")

	db.away.Store(false)
	require.Eventually(t, func() bool { return !linked("gone") }, soon, time.Millisecond)
	require.True(t, linked("back"), "over its newer link")
}
