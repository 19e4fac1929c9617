// Faults of what daemons ask each other's ports besides QUIC, and of its answers; they need networks of the daemons' own.

package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/fsm"
)

// Routing tables of the router, and where its rules stand: before those of cuts.
const (
	refuseTable = 78
	icmpPref    = 40
	probePref   = 50
)

// refuser is a network that has the address of a daemon and nobody who listens
// there: its kernel refuses what is led to it, in that daemon's name.
type refuser struct {
	space *namespace
	on    map[netip.AddrPort]bool
}

// DropICMP makes every ICMP packet between the daemons vanish, or takes that back.
func (f *Fleet) DropICMP(drop bool) error {
	if f.router == nil {
		return errNoNetworks
	}
	return f.router.hub.ip(fmt.Sprintf("rule %s ipproto icmp lookup %d pref %d", verb(drop), voidTable, icmpPref))
}

// RefuseProbes has every datagram to a daemon's port refused that does not come
// from another daemon's port, or takes that back. QUIC between daemons passes.
func (f *Fleet) RefuseProbes(n *Node, refuse bool) error {
	if f.router == nil {
		return errNoNetworks
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuser == nil {
		r, err := f.router.newRefuser()
		if err != nil {
			return err
		}
		f.refuser = r
	}
	if f.refuser.on[n.ownCluster] == refuse {
		return nil
	}
	f.refuser.on[n.ownCluster] = refuse
	var lines []string
	for _, from := range f.nodes {
		if from == n {
			continue
		}
		port := from.ownCluster.Port() // where its QUIC comes from
		for _, ports := range []string{fmt.Sprintf("1-%d", port-1), fmt.Sprintf("%d-65534", port+1)} {
			lines = append(lines, fmt.Sprintf("rule %s from %s to %s ipproto udp sport %s lookup %d pref %d",
				verb(refuse), from.ownCluster.Addr(), n.ownCluster.Addr(), ports, refuseTable, probePref))
		}
	}
	owns := "addr add %s/32 dev lo"
	if !refuse {
		owns = "addr del %s/32 dev lo"
	}
	return errors.Join(f.refuser.space.ip(fmt.Sprintf(owns, n.ownCluster.Addr())), f.router.hub.ip(lines...))
}

// Refusals counts the datagrams that RefuseProbes had refused so far: proof that the fault happened.
func (f *Fleet) Refusals() (n uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuser == nil {
		return 0, nil
	}
	err = f.refuser.space.do(func() (err error) {
		n, err = unreachables()
		return err
	})
	return n, err
}

// ICMPDropped counts the packets that went nowhere so far, ICMP among them.
func (f *Fleet) ICMPDropped() (n uint64, err error) {
	if f.router == nil {
		return 0, errNoNetworks
	}
	err = f.router.hub.do(func() (err error) {
		n, err = sent("void0")
		return err
	})
	return n, err
}

var errNoNetworks = errors.New("the daemons have no networks of their own: this process is not privileged, or did not ask")

func verb(add bool) string {
	if add {
		return "add"
	}
	return "del"
}

func (r *router) newRefuser() (*refuser, error) {
	space, err := newNamespace()
	if err != nil {
		return nil, err
	}
	err = space.do(func() error { return os.WriteFile("/proc/sys/net/ipv4/icmp_ratelimit", []byte("0"), 0) })
	if err == nil {
		err = r.hub.ip("link add refuse0 type veth peer name refuse1 netns "+space.path(), "addr add 10.78.0.1/30 dev refuse0", "link set refuse0 up",
			fmt.Sprintf("route add default via 10.78.0.2 table %d", refuseTable))
	}
	if err == nil {
		err = space.ip("addr add 10.78.0.2/30 dev refuse1", "link set refuse1 up", "route add default via 10.78.0.1")
	}
	if err != nil {
		return nil, errors.Join(err, space.close())
	}
	return &refuser{space: space, on: map[netip.AddrPort]bool{}}, nil
}

func (r *refuser) close() error {
	if r == nil {
		return nil
	}
	return r.space.close()
}

// AddLearner starts a further daemon that joins and is not promoted.
func (f *Fleet) AddLearner(ctx context.Context) (*Node, error) {
	n, err := f.newNode(len(f.Nodes()))
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.nodes = append(f.nodes, n)
	f.mu.Unlock()
	if err := f.startJoiner(ctx, n); err != nil {
		return nil, err
	}
	_, err = f.nodes[0].WaitStatus(ctx, n.Name+" to be active", func(s health.ClusterStatus) bool {
		for _, m := range s.Members {
			if m.Node == n.ID {
				return m.State == fsm.Active
			}
		}
		return false
	})
	return n, err
}
