// A connected socket of a process that listens elsewhere: who refuses it, who is silent, and what cuts it off.

package netsim

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDialAs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const asks, holds = "10.0.0.1:7443", "10.0.0.2:7443"
		n := New(1)
		n.Delay(time.Millisecond, time.Millisecond)
		own, port := n.Listen(asks), n.Listen(holds)
		go func() {
			for buf := make([]byte, 8); ; {
				size, from, err := port.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = port.WriteTo(buf[:size], from)
			}
		}()
		probe, other := n.DialAs(asks, holds), n.DialAs(asks, holds)
		require.NotEqual(t, probe.LocalAddr(), other.LocalAddr())
		require.NoError(t, other.Close())
		ask := func() error {
			_, err := probe.Write([]byte("there?"))
			require.NoError(t, err)
			require.NoError(t, probe.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
			_, err = probe.Read(make([]byte, 8))
			return err
		}
		for _, c := range []struct {
			name     string
			do, undo func()
			want     error // nil: it is answered
		}{
			{"nothing", func() {}, func() {}, nil},
			{"the other process is gone", func() { n.Unplug(holds) }, func() { n.Plug(holds) }, syscall.ECONNREFUSED},
			{"its own process is gone", func() { n.Unplug(asks) }, func() { n.Plug(asks) }, os.ErrDeadlineExceeded},
			{"the two are cut off", func() { n.Cut(asks, holds) }, n.HealAll, os.ErrDeadlineExceeded},
			{"the way there is cut", func() { n.CutOneWay(asks, holds) }, n.HealAll, os.ErrDeadlineExceeded},
			{"the way back is cut", func() { n.CutOneWay(holds, asks) }, n.HealAll, os.ErrDeadlineExceeded},
			{"its own process is isolated", func() { n.Isolate(asks) }, n.HealAll, os.ErrDeadlineExceeded},
			{"the other one is isolated", func() { n.Isolate(holds) }, n.HealAll, os.ErrDeadlineExceeded},
			{"gone, and the way there is cut", func() { n.Unplug(holds); n.CutOneWay(asks, holds) }, func() { n.Plug(holds); n.HealAll() }, os.ErrDeadlineExceeded},
			{"gone, and the way back is cut", func() { n.Unplug(holds); n.CutOneWay(holds, asks) }, func() { n.Plug(holds); n.HealAll() }, os.ErrDeadlineExceeded},
			{"its own process is slow", func() { n.Lag(asks, 20*time.Millisecond) }, func() { n.Lag(asks, 0) }, os.ErrDeadlineExceeded},
			{"everything is lost", func() { n.Unplug(holds); n.Loss(1) }, func() { n.Plug(holds); n.Loss(0) }, os.ErrDeadlineExceeded},
		} {
			c.do()
			require.ErrorIs(t, ask(), c.want, c.name)
			c.undo()
			<-time.After(50 * time.Millisecond) // what was late has arrived
			for late := error(nil); late == nil; {
				require.NoError(t, probe.SetReadDeadline(time.Now().Add(time.Millisecond)))
				_, late = probe.Read(make([]byte, 8))
			}
			require.NoError(t, ask(), "after: %s", c.name)
		}
		require.NoError(t, probe.Close())
		require.NoError(t, own.Close())
		require.NoError(t, port.Close())
	})
}
