// A router between daemons that have a network each: packets between two of them are really dropped or refused on their way.

package fleet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// Cutting is how a link between two daemons is cut.
type Cutting string

// The ways to cut. A relay knows only the first.
const (
	Drop   Cutting = "dropped"             // packets vanish
	Refuse Cutting = "network unreachable" // answered by ICMP; a UDP socket takes no notice
	Forbid Cutting = "prohibited"          // answered by ICMP; a connected UDP socket gets an error
	Unplug Cutting = "unplugged"           // the daemon's link is down
)

// voidTable is the routing table of packets that shall vanish: it leads to a link
// whose other end forwards nothing, and which counts.
const voidTable = 77

// router is a network that nothing but the daemons' networks is connected to.
type router struct {
	hub, void *namespace

	mu    sync.Mutex
	ports []*namespace // of the daemons, by index
	cuts  map[[2]int]Cutting
	downs uint64 // links that were taken down
}

// Privileged reports whether this process may give daemons networks and disks of
// their own: root may, but in many containers.
func Privileged() bool {
	if _, err := exec.LookPath("ip"); err != nil || os.Geteuid() != 0 {
		return false
	}
	ns, err := newNamespace()
	return err == nil && ns.close() == nil
}

// newRouter makes a router. The process must be privileged.
func newRouter() (*router, error) {
	hub, err := newNamespace()
	if err != nil {
		return nil, err
	}
	void, err := newNamespace()
	if err != nil {
		return nil, errors.Join(err, hub.close())
	}
	r := &router{hub: hub, void: void, cuts: map[[2]int]Cutting{}}
	err = hub.do(func() error {
		// Every packet that is refused shall be answered.
		return errors.Join(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0), os.WriteFile("/proc/sys/net/ipv4/icmp_ratelimit", []byte("0"), 0))
	})
	if err == nil {
		err = hub.ip("link add void0 type veth peer name void1 netns "+void.path(), "link set void0 arp off addrgenmode none up",
			fmt.Sprintf("route add default dev void0 table %d", voidTable))
	}
	if err == nil {
		err = void.ip("link set void1 up")
	}
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// port makes the network of the next daemon and returns its address there.
func (r *router) port() (*namespace, netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := len(r.ports)
	ns, err := newNamespace()
	if err != nil {
		return nil, netip.Addr{}, err
	}
	near, far := netip.AddrFrom4([4]byte{10, 77, byte(i), 1}), address(i)
	err = r.hub.ip(fmt.Sprintf("link add port%d type veth peer name eth0 netns %s", i, ns.path()), fmt.Sprintf("addr add %s/30 dev port%d", near, i), fmt.Sprintf("link set port%d up", i))
	if err == nil {
		err = ns.ip(fmt.Sprintf("addr add %s/30 dev eth0", far), "link set eth0 up", "route add default via "+near.String())
	}
	if err != nil {
		return nil, netip.Addr{}, errors.Join(err, ns.close())
	}
	r.ports = append(r.ports, ns)
	return ns, far, nil
}

// address is the i-th daemon's.
func address(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, byte(i), 2}) }

// cut cuts the links of pairs of daemons, in both directions.
func (r *router) cut(how Cutting, pairs ...[2]int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, pair := range pairs {
		if r.cuts[pair] != "" || r.cuts[[2]int{pair[1], pair[0]}] != "" {
			continue
		}
		r.cuts[pair] = how
		if how == Unplug {
			r.downs++
			lines = append(lines, fmt.Sprintf("link set port%d down", pair[0]))
			continue
		}
		lines = append(lines, rule("add", how, pair[0], pair[1]), rule("add", how, pair[1], pair[0]))
	}
	return r.apply(lines)
}

// heal restores links.
func (r *router) heal(pairs ...[2]int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, pair := range pairs {
		switch how := r.cuts[pair]; how {
		case "":
			continue
		case Unplug:
			lines = append(lines, fmt.Sprintf("link set port%d up", pair[0]))
		default:
			lines = append(lines, rule("del", how, pair[0], pair[1]), rule("del", how, pair[1], pair[0]))
		}
		delete(r.cuts, pair)
	}
	return r.apply(lines)
}

func (r *router) apply(lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	return r.hub.ip(lines...)
}

// rule is the line of ip(8) about packets of one direction.
func rule(verb string, how Cutting, from, to int) string {
	action := map[Cutting]string{Drop: fmt.Sprintf("lookup %d", voidTable), Refuse: "type unreachable", Forbid: "type prohibit"}[how]
	return fmt.Sprintf("rule %s from %s to %s %s pref %d", verb, address(from), address(to), action, 100+16*from+to)
}

// cutPairs lists what is cut.
func (r *router) cutPairs() (pairs [][2]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pair := range r.cuts {
		pairs = append(pairs, pair)
	}
	return pairs
}

// dropped counts packets that vanished or were refused, and links taken down.
func (r *router) dropped() (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var vanished, refused uint64
	err := r.hub.do(func() (err error) {
		if vanished, err = sent("void0"); err == nil {
			refused, err = unreachables()
		}
		return err
	})
	return vanished + refused + r.downs, err
}

// sent counts the packets that left by a link of this thread's network.
func sent(link string) (n uint64, err error) {
	text, err := os.ReadFile("/proc/thread-self/net/dev")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if name, figures, _ := strings.Cut(strings.TrimSpace(line), ":"); name == link {
			fields := strings.Fields(figures)
			if len(fields) < 10 {
				break
			}
			_, err := fmt.Sscan(fields[9], &n)
			return n, err
		}
	}
	return 0, fmt.Errorf("no link %s", link)
}

// unreachables counts the refusals that this thread's network sent.
func unreachables() (n uint64, err error) {
	text, err := os.ReadFile("/proc/thread-self/net/snmp")
	if err != nil {
		return 0, err
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "Icmp:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names {
			if name == "OutDestUnreachs" && i < len(fields) {
				_, err := fmt.Sscan(fields[i], &n)
				return n, err
			}
		}
	}
	return 0, errors.New("no figures of ICMP")
}

// close gives the networks back; processes in them must have ended.
func (r *router) close() error {
	err := errors.Join(r.hub.close(), r.void.close())
	for _, ns := range r.ports {
		err = errors.Join(err, ns.close())
	}
	return err
}
