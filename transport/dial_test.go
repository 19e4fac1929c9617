// The order in which the addresses of a name are tried.

package transport

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEveryAddressOfANameIsTried(t *testing.T) {
	ips := []netip.Addr{netip.MustParseAddr("::1"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}
	var d dialer
	d.init(Limits{BackoffMax: time.Millisecond})
	k := dialKey{addr: "fleet.example:7443"}
	var tried []netip.Addr
	for range 4 {
		tried = append(tried, inTurn(ips, d.failed(k)))
		d.finish(k, &attempt{done: make(chan struct{}), err: &Error{Code: CodeNetwork}})
	}
	require.Equal(t, append(ips, ips[0]), tried)
	d.finish(k, &attempt{done: make(chan struct{})})
	require.Zero(t, d.failed(k), "an attempt that succeeds begins anew")
}
