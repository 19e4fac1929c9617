// Package bubble runs a fleet of real daemons inside a testing/synctest bubble:
// real Raft over real QUIC on an in-memory network with faults, real PostgreSQL
// on a unix socket, virtual time.
//
// What freezes the bubble's clock stays outside: jobs run in process, the API
// listens in memory, PostgreSQL outages belong to the process fleet.
package bubble

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/config"
	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/membership"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/daemon"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/netsim"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// born is before the year in which a bubble's clock starts.
var born = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)

// Options says how a fleet differs from the plain one.
type Options struct {
	Size int       // daemons
	Seed uint64    // of the network's draws
	Log  io.Writer // where the daemons log; nil: the test's output
	// Config changes the configuration of every incarnation; may be nil.
	Config func(cfg *config.Config)
	// Outside changes what a new incarnation uses of the outside; may be nil.
	Outside func(n *Node, out *daemon.Outside)
	// Ended is told the directory of all daemons and agents when they have ended
	// with the test, before it is removed; may be nil.
	Ended func(dir string)
}

// Fleet is a fleet in a bubble. Use it from one goroutine.
type Fleet struct {
	t         testing.TB
	opts      Options
	Net       *netsim.Network
	Database  *pgtest.Database
	authority *pki.Authority
	dir       string // made before Stop is registered, so that it outlives the daemons
	Nodes     []*Node
	lost      []*Node // replaced after they lost their disks
	Agents    []*Agent
}

// New starts a fleet of size daemons: the first bootstraps, the others join and
// are promoted. Call it inside the bubble, with a database made outside of it.
func New(t testing.TB, db *pgtest.Database, size int, seed uint64) *Fleet {
	t.Helper()
	return NewWith(t, db, Options{Size: size, Seed: seed})
}

// NewWith is New with more to choose.
func NewWith(t testing.TB, db *pgtest.Database, opts Options) *Fleet {
	t.Helper()
	authority, err := pki.NewAuthority("", pki.AuthorityOptions{Validity: pki.Validity{NotBefore: born}})
	require.NoError(t, err)
	if opts.Log == nil {
		opts.Log = t.Output()
	}
	f := &Fleet{t: t, opts: opts, Net: netsim.New(opts.Seed), Database: db, authority: authority, dir: workDir(t)}
	f.Net.Delay(time.Millisecond, 3*time.Millisecond)
	t.Cleanup(func() {
		if opts.Ended != nil {
			opts.Ended(f.dir)
		}
	})
	t.Cleanup(f.Stop)
	for i := range opts.Size {
		f.Nodes = append(f.Nodes, f.newNode(i, "node-"+string(rune('a'+i))))
	}
	first := f.Nodes[0]
	require.NoError(t, first.Start(daemon.Start{Bootstrap: true}))
	first.Await("leads", func(s health.ClusterStatus) bool {
		return s.Leader.Node == first.ID && s.Leader.Epoch.Epoch > 0
	})
	for _, n := range f.Nodes[1:] {
		f.join(n)
	}
	return f
}

// workDir is in memory where there is such a file system: a fleet syncs its logs
// thousands of times, which costs real time and no virtual.
func workDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "fybubble")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// newNode makes the node of a place in the fleet, which has its addresses.
func (f *Fleet) newNode(place int, name string) *Node {
	n := &Node{
		fleet: f, place: place, Name: name, ID: cluster.NewNodeID(),
		cluster: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(place + 1)}), 7443),
		agents:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(place + 1)}), 7444),
	}
	n.dir = filepath.Join(f.dir, n.Name)
	n.id = f.identity(pki.KindNode, n.ID.String())
	return n
}

// Replace puts a new node, with an empty disk and an identity of its own, in the
// place and at the addresses of one that is down and whose disk is lost. It must
// join; the lost one stays a member until somebody removes it.
func (f *Fleet) Replace(gone *Node) *Node {
	f.t.Helper()
	require.False(f.t, gone.Running(), gone.Name)
	require.NoError(f.t, gone.wait())
	require.NoError(f.t, os.RemoveAll(gone.dir))
	f.lost = append(f.lost, gone)
	n := f.newNode(gone.place, fmt.Sprintf("%s-%d", gone.Name, len(f.lost)+1))
	f.Nodes[gone.place] = n
	return n
}

func (f *Fleet) identity(kind pki.Kind, id string) *pki.Identity {
	issued, err := f.authority.Issue(pki.Subject{Kind: kind, ID: id}, pki.Validity{NotBefore: born})
	require.NoError(f.t, err)
	identity, err := issued.Identity(f.authority)
	require.NoError(f.t, err)
	return identity
}

func (f *Fleet) join(n *Node) {
	f.t.Helper()
	var added membership.Added
	first := f.Nodes[0]
	first.Call(http.MethodPost, "/v1/cluster/add", membership.AddRequest{Node: n.ID, Name: n.Name}, &added)
	require.NoError(f.t, n.Start(daemon.Start{Token: membership.Token(added.Token)}))
	first.Await(n.Name+" is active", func(s health.ClusterStatus) bool {
		for _, m := range s.Members {
			if m.Node == n.ID {
				return m.State == fsm.Active
			}
		}
		return false
	})
	first.Call(http.MethodPost, "/v1/cluster/promote", membership.PromoteRequest{Node: n.Name}, nil)
}

// Isolate cuts the daemon off from all other daemons; agents and PostgreSQL still reach it.
func (f *Fleet) Isolate(n *Node) { f.Net.Isolate(n.cluster.String()) }

// Cut cuts two daemons off from each other.
func (f *Fleet) Cut(a, b *Node) { f.Net.Cut(a.cluster.String(), b.cluster.String()) }

// Starve delays everything that the daemon hears and says.
func (f *Fleet) Starve(n *Node, by time.Duration) { f.Net.Lag(n.cluster.String(), by) }

// Heal restores every link.
func (f *Fleet) Heal() { f.Net.HealAll() }

// Stop ends agents and daemons; the fleet's test does it by itself at its end.
func (f *Fleet) Stop() {
	f.t.Helper()
	for _, a := range f.Agents {
		a.Stop()
	}
	for _, n := range f.Nodes {
		n.Stop()
	}
	f.requireOrder()
}

// patience is the virtual time after which waiting fails.
const patience = 2 * time.Minute

// Await polls in virtual time until ok, and fails the test after two virtual minutes.
func (f *Fleet) Await(what string, ok func() bool) {
	f.t.Helper()
	for begun := time.Now(); !ok(); <-time.After(50 * time.Millisecond) {
		if time.Since(begun) > patience {
			require.FailNowf(f.t, "it did not happen", "%s: not within %s", what, patience)
		}
	}
}

// ActiveAbove returns the node on which a role is active under an epoch above one.
func (f *Fleet) ActiveAbove(role fsm.Role, above fsm.Epoch, among ...*Node) (owner *Node, epoch fsm.Epoch) {
	f.t.Helper()
	f.Await(fmt.Sprintf("%s active above epoch %d", role, above), func() bool {
		for _, n := range among {
			for _, row := range n.Roles() {
				if row.Role == role && row.State == cluster.GuardActive && row.Epoch > above {
					owner, epoch = n, row.Epoch
					return true
				}
			}
		}
		return false
	})
	return owner, epoch
}
