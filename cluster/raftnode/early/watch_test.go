// The watch on a simulated network: what it has seen of a port by the time that its holder dies.

package early

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/netsim"
	"github.com/forgeyard/forgeyard/transport/echo"
)

// lone follows a leader that appends until it dies; no other voter answers it.
type lone struct{ died atomic.Pointer[time.Time] }

func (l *lone) Standing() Standing {
	s := gone().s
	s.Appended = time.Now()
	if at := l.died.Load(); at != nil {
		s.Appended = *at
	}
	return s
}

func (*lone) Ask(context.Context, fsm.NodeID) (Testimony, error) { return Testimony{}, net.ErrClosed }
func (*lone) Campaign(context.Context, Standing) error           { return net.ErrClosed }

// One answer that is lost must not blind a voter: whenever its leader dies then, the refusals count.
func TestOneLostAnswerIsMadeGood(t *testing.T) {
	const leads, watches = "10.0.0.3:1", "10.0.0.1:1"
	for later := 100 * time.Millisecond; later < 2*time.Second; later += 100 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			sim := netsim.New(1)
			sim.Delay(time.Millisecond, time.Millisecond)
			port := sim.Listen(leads)
			go func() {
				for buf := make([]byte, 256); ; {
					n, from, err := port.ReadFrom(buf)
					if err != nil {
						return
					}
					if out, ok := echo.Answer(buf[:n], process(3)); ok {
						_, _ = port.WriteTo(out, from)
					}
				}
			}()
			engine := &lone{}
			w := New(node(1), engine, Outside{
				Dial:    func(to string) (net.Conn, error) { return sim.Dial(watches, to), nil },
				Resolve: func(fsm.NodeID) (string, bool) { return leads, true },
			}, slog.New(slog.DiscardHandler), time.Now)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); w.Run(ctx) }()

			<-time.After(echoEvery / 2)
			sim.CutOneWay(leads, watches)
			<-time.After(echoEvery/2 + echoWait)
			require.Equal(t, 1, sim.Stopped(leads, watches), "no answer was lost")
			sim.Heal(leads, watches)
			<-time.After(later)
			now := time.Now()
			engine.died.Store(&now)
			require.NoError(t, port.Close())
			<-time.After(2 * Silence)
			require.True(t, w.Testify().Gone, "dead %v after a lost answer", later)
			stop()
			<-ended
		})
	}
}

// Whoever asks why it took the timers to replace a dead leader finds it in the log.
func TestSuccessorByTimersIsExplained(t *testing.T) {
	var text strings.Builder
	w := New(node(1), &lone{}, Outside{}, slog.New(slog.NewTextHandler(&text, nil)), time.Now)
	silent := gone().s
	silent.Appended = time.Now().Add(-2 * Silence)
	appends := silent
	appends.Appended = time.Now()
	elects, follows := silent, appends
	elects.Leader, elects.Term = fsm.NodeID{}, silent.Term+1
	follows.Leader, follows.Term = node(2), silent.Term+1
	for _, c := range []struct {
		finding Finding
		next    []Standing
		says    string
	}{
		{NotRefused, []Standing{silent, elects, follows, follows}, `finding="the leader's port does not refuse"`},
		{Minority, []Standing{elects, follows}, `finding="no majority sees it"`},
		{NotRefused, []Standing{silent, appends, follows}, ""},
		{Campaign, []Standing{elects, follows}, ""},
	} {
		text.Reset()
		w.doubt = doubt{silent.about(), c.finding}
		for _, s := range c.next {
			w.conclude(s)
		}
		if c.says == "" {
			require.Empty(t, text.String())
			continue
		}
		require.Equal(t, 1, strings.Count(text.String(), "a silent leader has a successor"))
		require.Contains(t, text.String(), c.says)
	}
}
