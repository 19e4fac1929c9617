// The two QUIC sockets: one for nodes, one for agents, so that a flood of one cannot starve the other.

package daemon

import (
	"context"
	"net"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// listen opens an endpoint that accepts one kind of peer.
func (d *Daemon) listen(conn net.PacketConn, accept pki.Kind, admit func(transport.Peer, transport.Family, string) error) (*transport.Endpoint, error) {
	return transport.Listen(transport.Config{
		Conn: conn, Identity: d.out.Identity, Accept: accept, Hello: d.hello, Admit: admit, Rejected: d.rejected,
		Logger: d.log, Now: d.out.Now,
	})
}

// hello is what this process says of itself on every new connection.
func (d *Daemon) hello() transport.Hello {
	h := transport.Hello{
		Cluster: d.self.Cluster, ID: d.self.Node.String(), Incarnation: d.self.Incarnation,
		ProtocolMin: protocol.Min, ProtocolMax: protocol.Max, Endpoint: d.cfg.Cluster.Advertise,
	}
	if b := d.known.Load(); b != nil {
		h.Generation = (*b).View().Generation
	}
	return h
}

func (d *Daemon) rejected(remote net.Addr, peer pki.Subject, err *transport.Error) {
	d.log.Warn("connection refused", "remote", remote, "peer", peer, "code", err.Code, "reason", err.Message)
}

// serveAgents opens the agents' socket. Agents need certificates, so a
// standalone daemon, which has none, serves them only in process.
func (d *Daemon) serveAgents(context.Context) (err error) {
	if !d.distributed() {
		return nil
	}
	anyAgent := func(transport.Peer, transport.Family, string) error { return nil } // kind and family were checked
	if d.agents, err = d.listen(d.out.Agents, pki.KindAgent, anyAgent); err != nil {
		return err
	}
	runner.Attach(d.agents, d.sessions)
	d.onStop(func(context.Context) error { return d.agents.Close() })
	d.background("agent sessions", d.sessions.Run)
	return nil
}
