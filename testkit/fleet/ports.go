// The addresses of a fleet: fixed ones for people, free ones for tests.

package fleet

import (
	"fmt"
	"net"
	"net/netip"
)

// Ports says where a fleet listens. Zero values mean free ports.
type Ports struct {
	Cluster int // UDP, the first node's; each further node adds Step
	Agents  int // UDP
	HTTP    int // TCP
	Step    int
}

// DevPorts are the documented ports of `forgeyard dev`.
func DevPorts() Ports { return Ports{Cluster: 7443, Agents: 7444, HTTP: 7480, Step: 10} }

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// udpPort returns want when it is free, else the next free one in steps of step
// (0: any free port).
func udpPort(want, step int) (netip.AddrPort, error) {
	for try := 0; try < 50; try++ {
		c, err := net.ListenUDP("udp", &net.UDPAddr{IP: loopback.AsSlice(), Port: want})
		if err == nil {
			addr := c.LocalAddr().(*net.UDPAddr).AddrPort()
			return netip.AddrPortFrom(loopback, addr.Port()), c.Close()
		}
		want += step
	}
	return netip.AddrPort{}, fmt.Errorf("no free UDP port near %d", want)
}

// tcpPort is udpPort for TCP.
func tcpPort(want, step int) (netip.AddrPort, error) {
	for try := 0; try < 50; try++ {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: loopback.AsSlice(), Port: want})
		if err == nil {
			addr := l.Addr().(*net.TCPAddr).AddrPort()
			return netip.AddrPortFrom(loopback, addr.Port()), l.Close()
		}
		want += step
	}
	return netip.AddrPort{}, fmt.Errorf("no free TCP port near %d", want)
}
