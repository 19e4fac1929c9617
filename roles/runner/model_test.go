// The agent's session under rapid: links that come and go, orders that are doubled, late and of old epochs, restarts of the process.

package runner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/runner/runnertest"
)

// peer is the one daemon of the machine: it welcomes, answers heartbeats and keeps what it hears.
type peer struct {
	mu     sync.Mutex
	up     bool
	link   runner.Link
	gone   map[string]bool // leases that are no longer the agent's
	heard  []runner.Message
	links  int
	serves sync.WaitGroup
}

func (p *peer) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *peer) Dial(context.Context, string) (runner.Uplink, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.up {
		return nil, errors.New("connection refused")
	}
	a, b := runnertest.Pipe(nil)
	p.serves.Go(func() { p.serve(b) })
	return a, nil
}

func (p *peer) serve(l runner.Link) {
	defer l.Close()
	hello, err := l.Receive(context.Background())
	if err != nil || hello.Hello == nil {
		return
	}
	w := &runner.Welcome{TTL: 20 * time.Second, Every: time.Second}
	p.locked(func() {
		for _, lease := range hello.Hello.Known {
			if !p.gone[lease] {
				w.Keep = append(w.Keep, lease)
			}
		}
		p.link = l
		p.links++
	})
	for err = l.Send(context.Background(), runner.Message{Welcome: w}); err == nil; {
		var m runner.Message
		if m, err = l.Receive(context.Background()); err != nil {
			return
		}
		if m.Beat == nil {
			p.locked(func() { p.heard = append(p.heard, m) })
			continue
		}
		pulse := &runner.Pulse{Seq: m.Beat.Seq}
		p.locked(func() {
			for _, of := range m.Beat.Leases {
				if !p.gone[of.Lease] {
					pulse.Alive = append(pulse.Alive, of.Lease)
				}
			}
		})
		err = l.Send(context.Background(), runner.Message{Pulse: pulse})
	}
}

// say sends one message if there is a link; what was heard since is what it made the agent say.
func (p *peer) say(m runner.Message) (sent bool) {
	var l runner.Link
	p.locked(func() { l, p.heard = p.link, nil })
	sent = l != nil && l.Send(context.Background(), m) == nil
	synctest.Wait()
	return sent
}

func (p *peer) cut() {
	p.locked(func() {
		p.up = false
		if p.link != nil {
			_ = p.link.Close()
		}
		p.link = nil
	})
}

// bench executes in process and counts every start of every agent process.
type bench struct {
	mu      sync.Mutex
	starts  map[string]int
	running map[string]chan struct{}
	most    int
}

func (b *bench) Run(ctx context.Context, t runner.Task, _ io.Writer) runner.Exit {
	done := make(chan struct{})
	b.mu.Lock()
	b.starts[t.Lease]++
	b.running[t.Lease] = done
	b.most = max(b.most, len(b.running))
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.running, t.Lease)
	}()
	select {
	case <-done:
		return exit(0)
	case <-ctx.Done():
		return runner.Exit{Signal: "killed"}
	}
}

func (b *bench) has(lease string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running[lease] != nil
}

func (b *bench) finish(lease string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.running[lease])
	b.running[lease] = make(chan struct{}) // until Run has returned
}

// offered is what the machine knows of a lease.
type offered struct {
	generation int  // of the newest order for it that was accepted before its start
	granted    bool // a Start was sent for it
}

// session is the machine.
type session struct {
	dir   string
	peer  *peer
	bench *bench
	stop  func()

	leases           []string
	known            map[string]*offered
	waiting          map[string]bool // accepted over the link that is up, and not told to start or not to
	generation, mark int             // the highest order that the agent was offered
	done             map[string]int
}

const slots = 2

// begin starts an agent process over the directory.
func (s *session) begin(t *rapid.T) {
	timing := quick
	timing.Margin, timing.Request, timing.Retry = time.Second, time.Second, time.Second
	a, err := runner.NewAgent(runner.AgentConfig{
		Endpoints: []string{"10.0.0.1:7444"}, Dialer: s.peer, Dir: s.dir, Slots: slots, Executor: s.bench, Timing: timing,
		Resolve: func(_ context.Context, host string) ([]string, error) { return []string{host}, nil },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	s.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			panic(err) // the directory is the test's own
		}
	}
	synctest.Wait()
}

// offer sends an order and requires that an older one is refused, and no other.
func (s *session) offer(t *rapid.T, lease string, generation, epoch int) {
	if !s.peer.say(runner.Message{Offer: order(lease, generation, epoch)}) {
		return
	}
	older := generation < s.generation || generation == s.generation && epoch < s.mark
	var answers []runner.Message
	s.peer.locked(func() { answers = s.peer.heard })
	refused, accepted := false, false
	for _, m := range answers {
		if a := m.Answer; a != nil && a.Lease == lease {
			refused, accepted = refused || a.Verdict == runner.Reread, accepted || a.Verdict == runner.Accepted
		}
	}
	require.Equal(t, older, refused, "order %d/%d after %d/%d", generation, epoch, s.generation, s.mark)
	if older {
		s.done["refused"]++
		require.False(t, accepted)
		return
	}
	if generation > s.generation {
		clear(s.waiting)
	}
	s.generation, s.mark = generation, epoch
	if accepted && s.bench.starts[lease] == 0 {
		s.known[lease].generation, s.waiting[lease] = generation, true
	}
	if accepted && s.bench.starts[lease] > 0 {
		require.True(t, s.bench.has(lease), "%s ended and is accepted again", lease)
	}
}

func (s *session) check(t *rapid.T) {
	synctest.Wait()
	s.bench.mu.Lock()
	defer s.bench.mu.Unlock()
	for lease, n := range s.bench.starts {
		require.Equal(t, 1, n, "lease %s was started again", lease)
		require.True(t, s.known[lease].granted, "lease %s was started without leave", lease)
	}
	for lease := range s.bench.running {
		require.GreaterOrEqual(t, s.known[lease].generation, s.generation, "lease %s of an older generation runs on", lease)
	}
	require.LessOrEqual(t, s.bench.most, slots)
}

// TestAgentSession: a lease is started once at most, whatever is repeated, lost or
// restarted; no order below the highest that was seen is obeyed; nothing runs that
// the database no longer gives to the agent; every result is told until it is taken,
// and every acceptance until it is answered.
func TestAgentSession(t *testing.T) {
	done := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(noDeadline{t}, func(t *rapid.T) { sessionMachine(t, done) })
	})
	t.Log(done)
	for _, what := range []string{"started", "refused", "links", "restarts", "lost", "told", "accepted again"} {
		require.Positive(t, done[what], "%v", done)
	}
}

// noDeadline hides what may not be asked for in a bubble.
type noDeadline struct{ rapid.TB }

func sessionMachine(t *rapid.T, done map[string]int) {
	dir, err := os.MkdirTemp("/dev/shm", "fysession")
	require.NoError(t, err)
	s := &session{
		dir: dir, peer: &peer{up: true, gone: map[string]bool{}}, bench: &bench{starts: map[string]int{}, running: map[string]chan struct{}{}},
		known: map[string]*offered{}, waiting: map[string]bool{}, generation: 1, mark: 1, done: done,
	}
	s.begin(t)
	t.Cleanup(func() {
		s.stop()
		s.peer.cut()
		s.peer.serves.Wait()
		_ = os.RemoveAll(dir)
	})
	some := func(t *rapid.T, do func(lease string)) { // nothing while there is none
		if len(s.leases) > 0 {
			do(s.leases[rapid.IntRange(0, len(s.leases)-1).Draw(t, "lease")])
		}
	}
	running := func(t *rapid.T, do func(lease string)) {
		some(t, func(lease string) {
			if s.bench.has(lease) {
				do(lease)
			}
		})
	}
	start := func(lease string, granted bool) {
		s.known[lease].granted = s.known[lease].granted || granted
		delete(s.waiting, lease)
		s.peer.say(runner.Message{Start: &runner.Start{Lease: lease, Granted: granted}})
	}
	fresh := func(t *rapid.T) string {
		lease := fmt.Sprint("l", len(s.leases)+1)
		s.leases = append(s.leases, lease)
		s.known[lease] = &offered{}
		s.offer(t, lease, s.generation, s.mark+rapid.IntRange(0, 1).Draw(t, "ahead"))
		return lease
	}
	t.Repeat(map[string]func(*rapid.T){
		"a new lease":              func(t *rapid.T) { fresh(t) },
		"a new lease that may run": func(t *rapid.T) { start(fresh(t), true) },
		"an order again, of any epoch": func(t *rapid.T) {
			some(t, func(lease string) {
				s.offer(t, lease, max(1, s.generation+rapid.IntRange(-1, 0).Draw(t, "generation")), max(1, s.mark+rapid.IntRange(-2, 1).Draw(t, "epoch")))
			})
		},
		"the cluster is recovered": func(t *rapid.T) { some(t, func(lease string) { s.offer(t, lease, s.generation+1, 1) }) },
		"it may run":               func(t *rapid.T) { some(t, func(lease string) { start(lease, true) }) },
		"it may not run":           func(t *rapid.T) { some(t, func(lease string) { start(lease, false) }) },
		"the link breaks":          func(*rapid.T) { s.peer.cut(); clear(s.waiting) },
		"a link comes": func(*rapid.T) {
			s.peer.locked(func() { s.peer.up = true })
			<-time.After(6 * time.Second) // beyond the longest back-off
		},
		"the database gives it to nobody any more": func(t *rapid.T) {
			running(t, func(lease string) {
				s.peer.locked(func() { s.peer.gone[lease] = true })
				<-time.After(20 * time.Second) // a heartbeat, a new link, or its deadline
				require.False(t, s.bench.has(lease), "%s runs on", lease)
				done["lost"]++
			})
		},
		"a client cancels it": func(t *rapid.T) {
			running(t, func(lease string) {
				if s.peer.say(runner.Message{Cancel: &runner.CancelOrder{Lease: lease}}) {
					require.False(t, s.bench.has(lease), "%s runs on", lease)
				}
			})
		},
		"the work ends": func(t *rapid.T) {
			running(t, func(lease string) {
				s.bench.finish(lease)
				synctest.Wait()
				require.False(t, s.bench.has(lease))
			})
		},
		"a result is taken": func(t *rapid.T) {
			some(t, func(lease string) {
				s.peer.say(runner.Message{Completed: &runner.Completed{Lease: lease, Accepted: true}})
			})
		},
		"results and acceptances are told again": func(t *rapid.T) {
			s.peer.locked(func() { s.peer.heard = nil })
			<-time.After(2100 * time.Millisecond)
			again := map[string]bool{}
			s.peer.locked(func() {
				for _, m := range s.peer.heard {
					switch {
					case m.Complete != nil || m.Release != nil:
						done["told"]++
					case m.Answer != nil:
						require.Equal(t, runner.Accepted, m.Answer.Verdict)
						again[m.Answer.Lease] = true
					}
				}
			})
			require.Equal(t, s.waiting, again)
			done["accepted again"] += len(again)
		},
		"the process is restarted": func(t *rapid.T) {
			s.stop()
			s.peer.locked(func() { s.peer.link = nil })
			clear(s.waiting)
			require.Empty(t, s.bench.running, "a process ended before its tasks")
			s.begin(t)
			done["restarts"]++
		},
		"": s.check,
	})

	// In the end, with a link and everybody's answers, nothing stays untold.
	s.peer.locked(func() { s.peer.up = true })
	<-time.After(6 * time.Second)
	for _, lease := range s.leases {
		if s.bench.has(lease) {
			s.bench.finish(lease)
		}
	}
	synctest.Wait()
	told := map[string]bool{}
	s.peer.locked(func() { s.peer.heard = nil })
	<-time.After(2100 * time.Millisecond)
	s.peer.locked(func() {
		for _, m := range s.peer.heard {
			switch {
			case m.Complete != nil:
				told[m.Complete.Lease] = true
			case m.Release != nil:
				told[m.Release.Lease] = true
			}
		}
	})
	for lease := range told {
		s.peer.say(runner.Message{Completed: &runner.Completed{Lease: lease, Accepted: true}})
	}
	s.peer.locked(func() { s.peer.heard = nil })
	<-time.After(2100 * time.Millisecond)
	s.peer.locked(func() {
		for _, m := range s.peer.heard {
			require.Nil(t, m.Complete)
			require.Nil(t, m.Release)
		}
	})
	s.check(t)
	done["started"] += len(s.bench.starts)
	done["links"] += s.peer.links
}
