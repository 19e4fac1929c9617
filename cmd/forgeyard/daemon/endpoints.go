// The two QUIC sockets: one for nodes, one for agents, so that a flood of one cannot starve the other.

package daemon

import (
	"context"
	"net"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// listen opens an endpoint that accepts one kind of peer, and at most so many connections.
func (d *Daemon) listen(conn net.PacketConn, accept pki.Kind, most int, admit func(transport.Peer, transport.Family, string) error) (*transport.Endpoint, error) {
	return transport.Listen(transport.Config{
		Conn: conn, Identity: d.out.Identity, Accept: accept, Hello: d.hello, Admit: admit,
		Limits: transport.Limits{Connections: most}, Logger: d.log, Now: d.out.Now,
		Echo: accept == pki.KindNode && d.cfg.Cluster.EarlyElection,
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

// serveAgents opens the agents' socket. Agents demand a node's certificate of
// their cluster, so a standalone daemon without one takes submissions only.
func (d *Daemon) serveAgents(context.Context) (err error) {
	if d.out.Identity == nil {
		d.log.Warn("no node certificate: agents cannot connect", "hint", "issue one with `forgeyard pki issue node` and set cluster.tls")
		return nil
	}
	anyAgent := func(transport.Peer, transport.Family, string) error { return nil } // kind and family were checked
	if d.agents, err = d.listen(d.out.Agents, pki.KindAgent, d.cfg.Cluster.Limits.Agents, anyAgent); err != nil {
		return err
	}
	runner.Attach(d.agents, d.sessions)
	d.onStop("the agents' endpoint", func(context.Context) error { return d.agents.Close() })
	d.background("agent sessions", d.sessions.Run)
	return nil
}
