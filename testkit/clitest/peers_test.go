// Peers that must not get in: wrong certificates on both sockets of a daemon, and messages that are none.

package clitest

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// fy is the stable code under which a reason is logged.
func fy(c transport.Code) string {
	_, code, _, _, _ := (&transport.Error{Code: c}).WireFields()
	return code
}

// TestWrongCertificates shows each kind of certificate to each socket of a
// running daemon, over every family it might ask for. Each is closed with its
// reason, on the wire and in the daemon's log.
func TestWrongCertificates(t *testing.T) {
	d := newSite(t, product(t)).start(t, "--bootstrap").leads()
	stranger, err := pki.NewAuthority("", pki.AuthorityOptions{})
	require.NoError(t, err)
	forger, err := pki.NewAuthority("", pki.AuthorityOptions{Cluster: d.ca.Cluster()})
	require.NoError(t, err)
	node, other := pki.Node(d.ca.Cluster(), cluster.NewNodeID()), pki.Node(stranger.Cluster(), cluster.NewNodeID())
	agent := pki.Subject{Cluster: d.ca.Cluster(), Kind: pki.KindAgent, ID: "agent-7"}
	admin := pki.Subject{Cluster: d.ca.Cluster(), Kind: pki.KindAdmin, ID: "admin-7"}
	expired := pki.Validity{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}
	twin := hello(node)
	twin.ID = d.id.String()
	elsewhere := hello(node)
	elsewhere.Cluster = stranger.Cluster()

	nodeFamilies := []transport.Family{transport.FamilyRaft, transport.FamilyControl, transport.FamilyDeploy}
	agentFamily := []transport.Family{transport.FamilyAgent}
	for _, c := range []struct {
		name     string
		socket   string
		ca       *pki.Authority
		who      pki.Subject
		valid    pki.Validity
		says     transport.Hello
		families []transport.Family
		want     transport.Code
	}{
		{"agent on the cluster socket", d.Cluster, d.ca, agent, pki.Validity{}, hello(agent), nodeFamilies, transport.CodeWrongKind},
		{"administrator on the cluster socket", d.Cluster, d.ca, admin, pki.Validity{}, hello(admin), nodeFamilies, transport.CodeWrongKind},
		{"node on the agents' socket", d.Agents, d.ca, node, pki.Validity{}, hello(node), agentFamily, transport.CodeWrongKind},
		{"administrator on the agents' socket", d.Agents, d.ca, admin, pki.Validity{}, hello(admin), agentFamily, transport.CodeWrongKind},
		{"agent with a node's family", d.Agents, d.ca, agent, pki.Validity{}, hello(agent), nodeFamilies, transport.CodeWrongFamily},
		{"node with the agents' family", d.Cluster, d.ca, node, pki.Validity{}, hello(node), agentFamily, transport.CodeWrongFamily},
		{"node of another cluster", d.Cluster, stranger, other, pki.Validity{}, hello(other), nodeFamilies, transport.CodeWrongCluster},
		{"node of a forged authority", d.Cluster, forger, node, pki.Validity{}, hello(node), nodeFamilies, transport.CodeAuthority},
		{"expired node", d.Cluster, d.ca, node, expired, hello(node), nodeFamilies, transport.CodeExpired},
		{"expired agent", d.Agents, d.ca, agent, expired, hello(agent), agentFamily, transport.CodeExpired},
		{"node that says it is the daemon itself", d.Cluster, d.ca, node, pki.Validity{}, twin, nodeFamilies, transport.CodeIDMismatch},
		{"node that speaks for another cluster", d.Cluster, d.ca, node, pki.Validity{}, elsewhere, nodeFamilies, transport.CodeWrongCluster},
	} {
		t.Run(c.name, func(t *testing.T) {
			issued, err := c.ca.Issue(c.who, c.valid)
			require.NoError(t, err)
			before := len(grep(t, d.log(), fy(c.want)))
			for _, family := range c.families {
				conn := dial(t, c.socket, pair(t, issued))
				err := conn.greet(c.says)
				if c.want == transport.CodeWrongFamily { // all else is right, so the hello is answered
					require.NoError(t, err)
					err = conn.send(frame(byte(family), 1, encoded(t, map[int]any{1: true, 2: "ping"})))
				}
				require.Error(t, err)
				require.Equal(t, c.want, conn.closedWith(), "family %s", family)
			}
			eventually(t, "the log names the reason", func() bool { return len(grep(t, d.log(), fy(c.want))) > before })
		})
	}

	t.Run("no certificate", func(t *testing.T) {
		for _, socket := range []string{d.Cluster, d.Agents} {
			conn := dial(t, socket)
			_ = conn.greet(hello(node))
			<-conn.Context().Done()
		}
	})
	t.Run("a node that is no member may only ask to join", func(t *testing.T) {
		issued, err := d.ca.Issue(node, pki.Validity{})
		require.NoError(t, err)
		conn := dial(t, d.Cluster, pair(t, issued))
		require.NoError(t, conn.greet(hello(node)))
		for _, family := range nodeFamilies {
			status, fields := conn.call(family, "propose", map[int]any{1: []byte{1}})
			require.EqualValues(t, 2, status)
			require.EqualValues(t, transport.CodeNotMember, fields[1])
		}
		d.logged(fy(transport.CodeNotMember))
		require.NoError(t, conn.Context().Err())
	})
	d.healthy()
}

// TestMalformedFrames sends what no build sends, with a certificate that may
// connect. Each costs its stream, a wrong family the connection; the daemon goes on.
func TestMalformedFrames(t *testing.T) {
	d := newSite(t, product(t)).start(t, "--bootstrap").leads()
	who := pki.Node(d.ca.Cluster(), cluster.NewNodeID())
	issued, err := d.ca.Issue(who, pki.Validity{})
	require.NoError(t, err)
	cert := pair(t, issued)

	junk, err := net.Dial("udp", d.Cluster)
	require.NoError(t, err)
	defer junk.Close()
	for size := 1; size < 1500; size += 50 {
		b := make([]byte, size)
		_, err := rand.Read(b)
		require.NoError(t, err)
		_, err = junk.Write(b)
		require.NoError(t, err)
	}

	early := dial(t, d.Cluster, cert)
	_ = early.send(frame(byte(transport.FamilyControl), 1, encoded(t, map[int]any{1: true, 2: "ping"})))
	early.closedWith() // nothing comes before the hello
	for name, first := range map[string][]byte{
		"a hello that is no CBOR": frame(helloFamily, 1, []byte{0xff, 0xff, 0xff}),
		"a hello without end":     binary.BigEndian.AppendUint32([]byte{helloFamily, 1}, 1<<31),
		"an empty stream":         {},
	} {
		conn := dial(t, d.Cluster, cert)
		_ = conn.send(first)
		require.NotEqual(t, transport.CodeOK, conn.closedWith(), name)
	}

	conn := dial(t, d.Cluster, cert)
	require.NoError(t, conn.greet(hello(who)))
	control := byte(transport.FamilyControl)
	open := encoded(t, map[int]any{1: true, 2: "join"})
	length := func(n uint32) []byte { return binary.BigEndian.AppendUint32([]byte{control, 1}, n) }
	for name, c := range map[string]struct {
		bytes []byte
		want  transport.Code
	}{
		"unknown family":     {frame(77, 1, open), transport.CodeUnknownFamily},
		"unknown version":    {frame(control, 9, open), transport.CodeVersion},
		"absurd length":      {length(1<<32 - 1), transport.CodeTooLarge},
		"half a frame":       {frame(control, 1, open)[:5], transport.CodeMalformed},
		"not CBOR":           {frame(control, 1, []byte{0xff, 0xff}), transport.CodeMalformed},
		"body above the cap": {append(frame(control, 1, open), length(1<<20+1)...), transport.CodeTooLarge},
	} {
		code, closed := reason(conn.send(c.bytes))
		require.True(t, closed, name)
		require.Equal(t, c.want, code, name)
		d.logged(fy(c.want))
	}
	_, err = conn.ask(append(frame(control, 1, open), frame(control, 1, encoded(t, map[int]any{1: 2, 2: strings.Repeat("x", 100_000)}))...))
	code, closed := reason(err)
	require.True(t, closed, "a join with a token of 100 kB")
	require.Equal(t, transport.CodeTooLarge, code)
	require.NoError(t, conn.Context().Err(), "the connection lives on")
	d.healthy()
}

// TestOversizeProposal holds a member's certificate and asks to commit what is
// larger than any command, and what is no command: nothing reaches the log.
func TestOversizeProposal(t *testing.T) {
	d := newSite(t, product(t)).start(t, "--bootstrap").leads()
	before, ok := d.status()
	require.True(t, ok)
	who := pki.Node(d.ca.Cluster(), d.id)
	cert, err := tls.LoadX509KeyPair(d.Cert, d.Key)
	require.NoError(t, err)
	conn := dial(t, d.Cluster, cert)
	require.NoError(t, conn.greet(hello(who)))
	for _, proposal := range [][]byte{make([]byte, fsm.MaxCommand+1), make([]byte, 512<<10), []byte("garbage"), {}} {
		status, fields := conn.call(transport.FamilyControl, "propose", map[int]any{1: proposal})
		require.EqualValues(t, 1, status)
		require.Equal(t, "FY-RAFT-003", fields[2], "%d bytes: %v", len(proposal), fields)
	}
	d.healthy()
	after, ok := d.status()
	require.True(t, ok)
	require.Equal(t, before.AppliedIndex, after.AppliedIndex)
}
