// Agents of the product's side: bare ones, which only speak the protocol, and whole ones with journal, directories and logs.

package peers

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/runner/runnertest"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// bare links n agents in memory that accept every offer, start it when they may and complete it at once by its own
// lease. They keep nothing, as the peer's no-op workers keep nothing: what is measured is leasing and completing.
func (p *plane) bare(b *testing.B, n, slots int) (stop func()) {
	b.Helper()
	net := p.network()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range n {
		id := fmt.Sprintf("bare-%03d", i)
		link, err := net.Dialer(id).Dial(ctx, "daemon")
		require.NoError(b, err)
		require.NoError(b, link.Send(ctx, runner.Message{Hello: &runner.Hello{Protocol: runner.ProtocolVersion, Session: id, Slots: slots}}))
		out := make(chan runner.Message, 4*slots) // a lease has at most two messages under way
		all.Go(func() { speak(ctx, link, out) })
		all.Go(func() { answer(ctx, link, out) })
	}
	p.linked(b, n)
	return func() {
		cancel()
		net.Close()
		all.Wait()
	}
}

// network serves this daemon's sessions in memory.
func (p *plane) network() *runnertest.Network {
	net := runnertest.NewNetwork()
	net.Start("daemon", p.sessions)
	return net
}

func speak(ctx context.Context, link runner.Link, out <-chan runner.Message) {
	beat := time.NewTicker(5 * time.Second)
	defer beat.Stop()
	for seq := uint64(1); ; {
		var m runner.Message
		select {
		case <-ctx.Done():
			return
		case m = <-out:
		case <-beat.C:
			seq++
			m.Beat = &runner.Beat{Seq: seq}
		}
		if link.Send(ctx, m) != nil {
			return
		}
	}
}

func answer(ctx context.Context, link runner.Link, out chan<- runner.Message) {
	code := 0
	for {
		m, err := link.Receive(ctx)
		switch {
		case err != nil:
			return
		case m.Offer != nil:
			out <- runner.Message{Answer: &runner.Answer{Lease: m.Offer.Lease, Verdict: runner.Accepted}}
		case m.Start != nil && m.Start.Granted:
			out <- runner.Message{Complete: &runner.Complete{Lease: m.Start.Lease, Outcome: runner.Succeeded, ExitCode: &code}}
		}
	}
}

// nothingToDo is an executor that starts no process.
func nothingToDo(context.Context, runner.Task, io.Writer) runner.Exit {
	code := 0
	return runner.Exit{Code: &code}
}

// whole runs real agents in this process; how tells by which way they reach the daemon.
func (p *plane) whole(b *testing.B, n, slots int, how func(id string) (runner.Dialer, string)) (stop func()) {
	b.Helper()
	dir, err := os.MkdirTemp("/tmp", "fyagents")
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range n {
		id := fmt.Sprintf("agent-%03d", i)
		dialer, addr := how(id)
		a, err := runner.NewAgent(runner.AgentConfig{
			Endpoints: []string{addr}, Dialer: dialer, Dir: dir + "/" + id, Slots: slots, Executor: runner.ExecutorFunc(nothingToDo),
		})
		require.NoError(b, err)
		all.Go(func() {
			if err := a.Run(ctx); err != nil {
				b.Error(err)
			}
		})
	}
	p.linked(b, n)
	return func() {
		cancel()
		all.Wait()
		require.NoError(b, os.RemoveAll(dir))
	}
}

// inMemory links whole agents as the bare ones are.
func (p *plane) inMemory(b *testing.B, n, slots int) (stop func()) {
	net := p.network()
	quit := p.whole(b, n, slots, func(id string) (runner.Dialer, string) { return net.Dialer(id), "daemon" })
	return func() { quit(); net.Close() }
}

// overQUIC links whole agents over loopback sockets, each with its own certificate and its own socket.
func (p *plane) overQUIC(b *testing.B, n, slots int) (stop func()) {
	ca, err := pki.NewAuthority("", pki.AuthorityOptions{})
	require.NoError(b, err)
	serves := runnertest.Endpoint(b, ca, pki.Node(ca.Cluster(), cluster.NewNodeID()), pki.KindAgent)
	runner.Attach(serves, p.sessions)
	ctx, cancel := context.WithCancel(context.Background())
	var daemon sync.WaitGroup
	daemon.Go(func() { _ = p.sessions.Run(ctx) }) // nil by contract
	quit := p.whole(b, n, slots, func(id string) (runner.Dialer, string) {
		return runner.QUIC{Endpoint: runnertest.Endpoint(b, ca, pki.Subject{Cluster: ca.Cluster(), Kind: pki.KindAgent, ID: id}, "")}, serves.Addr().String()
	})
	return func() {
		quit()
		_ = serves.Close() // ends every link; the agents are gone
		cancel()
		daemon.Wait()
	}
}
