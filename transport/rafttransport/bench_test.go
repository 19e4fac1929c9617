// Raft over QUIC beside the library's own transport over TLS and TCP: the same three nodes, bolt with fsync, interleaved rounds.

package rafttransport_test

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport/pki"
	"github.com/forgeyard/forgeyard/transport/rafttransport"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/stretchr/testify/require"
)

const (
	benchRounds    = 12
	benchOps       = 200 // one after the other, in each round
	benchProposers = 64
	benchBurst     = 2000 // by all proposers together, in each round
	benchCommand   = 200  // bytes
	benchTimer     = time.Second
)

// BenchmarkRaftAgainstTCP prints the latency of a single proposer and the
// throughput of 64, and the median over the rounds of QUIC's to TCP's.
func BenchmarkRaftAgainstTCP(b *testing.B) {
	for range b.N {
		quic, tcp := quicTrio(b), tcpTrio(b)
		var latency, throughput [2][]float64 // of QUIC, of TCP
		for round := range benchRounds + 1 {
			trios := []int{0, 1}
			if round%2 == 1 {
				slices.Reverse(trios) // neither is always first
			}
			for _, i := range trios {
				lead := benchLeader(b, []*benchTrio{quic, tcp}[i])
				p50, rate := benchSequence(b, lead), benchBursts(b, lead)
				if round > 0 { // the first one warms up
					latency[i], throughput[i] = append(latency[i], p50), append(throughput[i], rate)
				}
			}
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(medianRatio(latency[0], latency[1]), "p50-ratio")
		b.ReportMetric(medianRatio(throughput[0], throughput[1]), "throughput-ratio")
		for i, name := range []string{"QUIC", "TCP+TLS"} {
			b.Logf("%-8s p50 %4.0f µs alone, %6.0f/s with %d proposers (medians of %d rounds)", name, median(latency[i]), median(throughput[i]), benchProposers, benchRounds)
		}
		b.Logf("QUIC to TCP+TLS, median of the rounds' ratios: p50 %.2f (goal ≤ 1.10), throughput %.2f (goal ≥ 1.0)",
			medianRatio(latency[0], latency[1]), medianRatio(throughput[0], throughput[1]))
	}
}

func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	return s[len(s)/2]
}

func medianRatio(a, b []float64) float64 {
	var out []float64
	for i := range a {
		out = append(out, a[i]/b[i])
	}
	return median(out)
}

// benchTrio is three nodes that differ from another trio in their transport alone.
type benchTrio struct{ nodes []*raft.Raft }

func quicTrio(b *testing.B) *benchTrio {
	ca, dir := authority(b), &directory{addr: map[fsm.NodeID]string{}}
	var ids []fsm.NodeID
	var transports []raft.Transport
	for range 3 {
		p := open(b, ca, dir, newID(), loopback(b))
		b.Cleanup(func() { require.NoError(b, p.Close()) })
		ids = append(ids, p.id)
		transports = append(transports, rafttransport.New(rafttransport.Config{
			Endpoint: p.Endpoint, Self: p.id, HeartbeatTimeout: benchTimer, ElectionTimeout: benchTimer,
		}))
	}
	return startTrio(b, ids, func(i int) raft.ServerAddress { return raft.ServerAddress(ids[i].String()) }, transports)
}

func tcpTrio(b *testing.B) *benchTrio {
	ca := authority(b)
	var ids []fsm.NodeID
	var addrs []raft.ServerAddress
	var transports []raft.Transport
	for range 3 {
		id := newID()
		cert, err := ca.Issue(pki.Node(ca.Cluster(), id), early())
		require.NoError(b, err)
		identity, err := cert.Identity(ca)
		require.NoError(b, err)
		layer := listenTLS(b, identity)
		ids, addrs = append(ids, id), append(addrs, raft.ServerAddress(layer.Addr().String()))
		transports = append(transports, raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: layer, MaxPool: 3, Timeout: 10 * time.Second, Logger: hclog.NewNullLogger(),
		}))
	}
	return startTrio(b, ids, func(i int) raft.ServerAddress { return addrs[i] }, transports)
}

// tlsLayer is the library's stream layer with the same certificates, both sides verified.
type tlsLayer struct {
	net.Listener
	client *tls.Config

	mu    sync.Mutex
	conns []net.Conn // the library leaves some of them open
}

func listenTLS(b *testing.B, identity *pki.Identity) *tlsLayer {
	verify := func(as pki.Purpose) func(tls.ConnectionState) error {
		return func(s tls.ConnectionState) error {
			_, err := identity.Verify(s.PeerCertificates, pki.Expect{Purpose: as, Kind: pki.KindNode, Now: time.Now()})
			return err
		}
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS13, GetCertificate: identity.GetCertificate, ClientAuth: tls.RequireAnyClientCert,
		VerifyConnection: verify(pki.AsClient),
	})
	require.NoError(b, err)
	layer := &tlsLayer{Listener: l, client: &tls.Config{
		MinVersion: tls.VersionTLS13, GetClientCertificate: identity.GetClientCertificate,
		InsecureSkipVerify: true, VerifyConnection: verify(pki.AsServer), // names are not what our certificates carry
	}}
	b.Cleanup(func() {
		layer.mu.Lock()
		defer layer.mu.Unlock()
		for _, c := range layer.conns {
			_ = c.Close() // most are closed
		}
	})
	return layer
}

// Dial implements raft.StreamLayer.
func (l *tlsLayer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: timeout}, "tcp", string(addr), l.client)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
	return c, nil
}

func startTrio(b *testing.B, ids []fsm.NodeID, at func(int) raft.ServerAddress, transports []raft.Transport) *benchTrio {
	var cfg raft.Configuration
	for i, id := range ids {
		cfg.Servers = append(cfg.Servers, raft.Server{ID: raft.ServerID(id.String()), Address: at(i)})
	}
	trio := &benchTrio{}
	for i, id := range ids {
		rc := raft.DefaultConfig()
		rc.LocalID = raft.ServerID(id.String())
		rc.HeartbeatTimeout, rc.ElectionTimeout, rc.LeaderLeaseTimeout = benchTimer, benchTimer, benchTimer/2
		rc.Logger = hclog.NewNullLogger()
		dir := b.TempDir()
		store, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, "raft.db")})
		require.NoError(b, err)
		cached, err := raft.NewLogCache(512, store)
		require.NoError(b, err)
		snaps, err := raft.NewFileSnapshotStoreWithLogger(dir, 1, rc.Logger)
		require.NoError(b, err)
		require.NoError(b, raft.BootstrapCluster(rc, cached, store, snaps, transports[i], cfg))
		r, err := raft.NewRaft(rc, &memory{}, cached, store, snaps, transports[i])
		require.NoError(b, err)
		trio.nodes = append(trio.nodes, r)
		b.Cleanup(func() {
			require.NoError(b, r.Shutdown().Error())
			require.NoError(b, store.Close())
		})
	}
	return trio
}

func benchLeader(b *testing.B, trio *benchTrio) (lead *raft.Raft) {
	require.Eventually(b, func() bool {
		for _, r := range trio.nodes {
			if r.VerifyLeader().Error() == nil {
				lead = r
				return true
			}
		}
		return false
	}, time.Minute, 10*time.Millisecond)
	return lead
}

// benchSequence is the median of one proposer's commits, in µs.
func benchSequence(b *testing.B, lead *raft.Raft) float64 {
	var took []float64
	for range benchOps {
		at := time.Now()
		require.NoError(b, lead.Apply(make([]byte, benchCommand), time.Minute).Error())
		took = append(took, float64(time.Since(at).Microseconds()))
	}
	return median(took)
}

// benchBursts is how many commits a second many proposers reach together.
func benchBursts(b *testing.B, lead *raft.Raft) float64 {
	var wg sync.WaitGroup
	failed := make(chan error, benchProposers)
	at := time.Now()
	for range benchProposers {
		wg.Go(func() {
			for range benchBurst / benchProposers {
				if err := lead.Apply(make([]byte, benchCommand), time.Minute).Error(); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(at)
	close(failed)
	require.NoError(b, <-failed)
	return float64(benchBurst/benchProposers*benchProposers) / took.Seconds()
}
