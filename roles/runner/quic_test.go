// Agents and daemons over the real transport.

package runner_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/runner/runnertest"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// served attaches a daemon's sessions to a socket for agents.
func (p *plane) served(ca *pki.Authority, by runner.TransferServer) *transport.Endpoint {
	e := runnertest.Endpoint(p.T, ca, pki.Node(ca.Cluster(), cluster.NewNodeID()), pki.KindAgent)
	s := runner.NewSessions(runner.SessionsConfig{Store: p.store, Node: e.Addr().String(), Transfers: by, Timing: quick})
	runner.Attach(e, s)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Run(ctx) }()
	p.Cleanup(func() { cancel(); <-ended })
	return e
}

// TestAgentOverQUIC runs a job over the real transport, moves the agent to
// another daemon in the middle of one, and shows that an agent is who its
// certificate says, whatever its address.
func TestAgentOverQUIC(t *testing.T) {
	p := newPlane(t)
	ca, err := pki.NewAuthority("", pki.AuthorityOptions{})
	require.NoError(t, err)
	w := newWarehouse()
	first, second := p.served(ca, w), p.served(ca, w)
	dials := runnertest.Endpoint(t, ca, pki.Subject{Cluster: ca.Cluster(), Kind: pki.KindAgent, ID: "builder-1"}, "")
	ex := newGate()
	a, err := runner.NewAgent(runner.AgentConfig{
		Endpoints: []string{first.Addr().String(), second.Addr().String()}, Dialer: runner.QUIC{Endpoint: dials},
		Dir: t.TempDir(), Slots: 2, Executor: ex, Timing: quick,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	at := func(e *transport.Endpoint) func() bool {
		return func() bool {
			return one[int](p, `SELECT count(*) FROM forge.agents WHERE id = 'builder-1' AND node = $1`, e.Addr().String()) == 1
		}
	}
	require.Eventually(t, at(first), soon, 5*time.Millisecond)

	lease := p.lease("builder-1", func(j *runner.JobSpec) { j.Argv = append(j.Argv, strings.Repeat("x", runner.MaxArgumentBytes-100)) })
	require.Eventually(t, func() bool { return ex.starts(lease) == 1 }, soon, time.Millisecond)
	require.NoError(t, first.Close())
	require.Eventually(t, at(second), soon, 5*time.Millisecond)
	ex.let()
	p.becomes(lease, "done")
	require.Equal(t, 1, ex.starts(lease))
	require.Equal(t, "done\n", w.theLog(t, lease), "on a stream of its own")

	// A graceful stop gives a running lease up at once.
	ex.shut()
	last := p.lease("builder-1", nil)
	require.Eventually(t, func() bool { return ex.starts(last) == 1 }, soon, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	require.Eventually(t, func() bool {
		return one[bool](p, `SELECT expires_at <= coordination.clock() AND reason = 'the agent is stopping' FROM forge.leases WHERE id = $1::text::uuid`, last)
	}, soon, 5*time.Millisecond)
	require.Eventually(t, func() bool { return one[bool](p, `SELECT link IS NULL FROM forge.agents`) }, soon, 5*time.Millisecond, "the link's end is recorded")
}
