// Weather does what it says, and what it did is counted packet by packet.

package netsim_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/netsim"
)

// received reads until nothing comes any more.
func received(t *testing.T, c net.PacketConn) (all []string) {
	t.Helper()
	for {
		text, err := receive(t, c)
		if err != nil {
			return all
		}
		all = append(all, text)
	}
}

func TestWeatherIsCounted(t *testing.T) {
	pair(t, 5, func(t *testing.T, n *netsim.Network, a, b net.PacketConn) {
		n.SetWeather(netsim.Weather{Duplicate: 1})
		send(t, a, b, "twice")
		require.Equal(t, []string{"twice", "twice"}, received(t, b))
		require.Equal(t, 1, n.Stats().Duplicated)

		n.SetWeather(netsim.Weather{Slow: 50 * time.Millisecond})
		began := time.Now()
		send(t, a, b, "late")
		_, err := receive(t, b)
		require.NoError(t, err)
		require.Greater(t, time.Since(began), time.Duration(0))
		require.Equal(t, 1, n.Stats().Slowed)

		n.SetWeather(netsim.Weather{Reorder: 0.5, HoldBack: 50 * time.Millisecond})
		for i := range 20 {
			send(t, a, b, fmt.Sprintf("%02d", i))
		}
		late, newest := 0, ""
		for _, text := range received(t, b) {
			if text < newest {
				late++
			}
			newest = max(text, newest)
		}
		require.Equal(t, late, n.Stats().Overtaken)
		require.NotZero(t, late)
		require.Zero(t, n.Stats().Lost)
	})
}

func TestCutIsCountedByDirection(t *testing.T) {
	pair(t, 5, func(t *testing.T, n *netsim.Network, a, b net.PacketConn) {
		n.CutOneWay(addrA, addrB)
		send(t, a, b, "lost")
		send(t, b, a, "heard")
		require.Equal(t, []string{"heard"}, received(t, a))
		require.Equal(t, 1, n.Stopped(addrA, addrB))
		require.Zero(t, n.Stopped(addrB, addrA))
		n.HealAll()

		n.Unplug(addrB)
		send(t, a, b, "lost")
		require.Empty(t, received(t, b))
		require.Equal(t, 1, n.Stopped(addrA, addrB), "that was no cut")
		n.Plug(addrB)
		send(t, a, b, "heard")
		require.Equal(t, []string{"heard"}, received(t, b))
		require.Equal(t, 2, n.Stats().Cut)
	})
}
