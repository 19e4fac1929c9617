// The agent's link: dial, hello, resync, then heartbeats, reports and orders until it breaks.

package runner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Back-off between rounds over all endpoints; within a round the next one is tried at once.
const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 5 * time.Second
)

// keepLinked holds a link to some daemon while ctx lives.
func (a *Agent) keepLinked(ctx context.Context) {
	wait := backoffFirst
	for ctx.Err() == nil {
		for _, endpoint := range expand(ctx, a.cfg.Endpoints, a.cfg.Resolve) {
			if ctx.Err() != nil {
				return
			}
			served, err := a.connect(ctx, endpoint)
			if err != nil && ctx.Err() == nil {
				a.log.Info("no link to a daemon", "endpoint", endpoint, "was_up", served, "err", err)
			}
			if served {
				wait = backoffFirst
			}
		}
		t := time.NewTimer(wait/2 + rand.N(wait/2+1))
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		wait = min(2*wait, backoffMost)
	}
}

// connect dials one endpoint and serves the link until it breaks. served tells
// whether the daemon had welcomed this agent.
func (a *Agent) connect(ctx context.Context, endpoint string) (served bool, err error) {
	dialCtx, done := context.WithTimeout(ctx, a.cfg.Timing.Request)
	defer done()
	link, err := a.cfg.Dialer.Dial(dialCtx, endpoint)
	if err != nil {
		return false, fmt.Errorf("dial: %w", err)
	}
	defer link.Close()
	w, sent, err := a.hello(dialCtx, link)
	if err != nil {
		return false, err
	}
	l := &agentLink{agent: a, link: link, welcome: w, poke: make(chan struct{}, 1), news: make(chan struct{}, 1), beats: map[uint64]beat{}}
	a.resync(l, sent)
	a.log.Info("linked to a daemon", "endpoint", endpoint, "node", w.Node, "link", w.Link)
	err = l.serve(ctx)
	a.unlink(l)
	return true, err
}

// hello says which leases this agent answers for and hears which of them are still its own.
func (a *Agent) hello(ctx context.Context, link Link) (Welcome, []string, error) {
	a.mu.Lock()
	known := make([]string, 0, len(a.attempts))
	for lease := range a.attempts {
		known = append(known, lease)
	}
	a.mu.Unlock()
	err := link.Send(ctx, Message{Hello: &Hello{
		Protocol: ProtocolVersion, Session: a.session, Slots: a.cfg.Slots, Labels: a.cfg.Labels, Build: a.cfg.Build, Known: known,
	}})
	if err != nil {
		return Welcome{}, nil, fmt.Errorf("hello: %w", err)
	}
	m, err := link.Receive(ctx)
	switch {
	case err != nil:
		return Welcome{}, nil, fmt.Errorf("hello: %w", err)
	case m.Goodbye != nil:
		return Welcome{}, nil, fmt.Errorf("hello refused: %s", m.Goodbye.Reason)
	case m.Welcome == nil || m.Welcome.TTL <= a.cfg.Timing.Margin || m.Welcome.Every <= 0:
		return Welcome{}, nil, errors.New("hello: the answer is no usable welcome")
	}
	return *m.Welcome, known, nil
}

// resync drops what the database no longer gives to this agent. The rest runs on (§116).
func (a *Agent) resync(l *agentLink, known []string) {
	keep := setOf(l.welcome.Keep)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.setLink(l)
	a.draining = l.welcome.Drain
	for _, lease := range known {
		if !keep[lease] {
			a.lose(lease)
		}
	}
}

// lose ends an attempt whose lease is someone else's or nobody's now.
func (a *Agent) lose(lease string) {
	if at := a.attempts[lease]; at != nil {
		a.drop(lease, at)
	}
}

func (a *Agent) unlink(l *agentLink) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.link == l {
		a.setLink(nil)
	}
	for lease, at := range a.attempts {
		if at.phase == phaseAccepted {
			delete(a.attempts, lease) // Start can no longer arrive; it will be offered again
		}
	}
}

// beat is a heartbeat that was sent and not yet answered.
type beat struct {
	sent   time.Time
	leases []string
}

// agentLink is one link in use.
type agentLink struct {
	agent   *Agent
	link    Uplink
	welcome Welcome
	poke    chan struct{} // an attempt ended
	news    chan struct{} // the next beat says something new
	sendMu  sync.Mutex

	mu    sync.Mutex
	seq   uint64
	beats map[uint64]beat
}

// nudge makes the link send reports now.
func (l *agentLink) nudge() {
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// announce makes the link send a beat now.
func (l *agentLink) announce() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// serve returns when the link breaks or ctx ends.
func (l *agentLink) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var reader sync.WaitGroup
	reader.Go(func() { cancel(l.read(ctx)) })
	defer reader.Wait()
	defer l.link.Close() // lets the reader go
	defer cancel(nil)

	heartbeat := time.NewTicker(l.welcome.Every)
	defer heartbeat.Stop()
	again := time.NewTicker(l.agent.cfg.Timing.Retry)
	defer again.Stop()
	err := errors.Join(l.beat(ctx), l.report(ctx, true))
	for err == nil {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-heartbeat.C:
			err = l.beat(ctx)
		case <-l.news:
			err = l.beat(ctx)
		case <-again.C:
			err = l.report(ctx, true)
		case <-l.poke:
			err = l.report(ctx, false)
		}
	}
	return err
}

func (l *agentLink) send(ctx context.Context, m Message) error {
	ctx, done := context.WithTimeout(ctx, l.agent.cfg.Timing.Request)
	defer done()
	l.sendMu.Lock()
	defer l.sendMu.Unlock()
	return l.link.Send(ctx, m)
}

// beat extends every lease that runs here.
func (l *agentLink) beat(ctx context.Context) error {
	b := beat{sent: time.Now()}
	m := &Beat{}
	l.agent.mu.Lock()
	m.Closing = l.agent.closing
	for lease, at := range l.agent.attempts {
		if at.phase == phaseRunning {
			work, note := at.life.beat()
			b.leases = append(b.leases, lease)
			m.Leases = append(m.Leases, Progress{Lease: lease, Bytes: at.tail.Total(), Work: work, Note: note})
		}
	}
	l.agent.mu.Unlock()
	l.mu.Lock()
	l.seq++
	m.Seq = l.seq
	l.beats[l.seq] = b
	delete(l.beats, l.seq-maxUnansweredBeats)
	l.mu.Unlock()
	return l.send(ctx, Message{Beat: m})
}

// maxUnansweredBeats bounds what a silent daemon can make an agent remember.
const maxUnansweredBeats = 64

// pulse takes the answer of a heartbeat: its leases live until TTL after it was
// sent, and those it does not name are gone.
func (l *agentLink) pulse(p Pulse) {
	l.mu.Lock()
	b, ok := l.beats[p.Seq]
	delete(l.beats, p.Seq)
	l.mu.Unlock()
	if !ok {
		return
	}
	a := l.agent
	alive := setOf(p.Alive)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, lease := range b.leases {
		at := a.attempts[lease]
		if at == nil || at.phase != phaseRunning {
			continue
		}
		if !alive[lease] {
			a.lose(lease)
			continue
		}
		deadline := b.sent.Add(l.welcome.TTL - a.cfg.Timing.Margin)
		at.kill.Reset(time.Until(deadline))
		at.life.until(deadline)
	}
}

// report sends what ended: everything again, or only what was never sent on any
// link. Again also means the acceptances that nobody has answered for a while:
// where the database took one and the daemon could not learn of that, no order
// brings it up any more, and its slot would stay taken.
func (l *agentLink) report(ctx context.Context, again bool) error {
	a := l.agent
	var out []Message
	a.mu.Lock()
	for _, at := range a.attempts {
		switch {
		case at.phase == phaseEnded && (again || !at.reported):
			at.reported = true
			out = append(out, at.report)
		case again && at.phase == phaseAccepted && time.Since(at.answered) >= a.cfg.Timing.Retry:
			out = append(out, Message{Answer: &Answer{Lease: at.offer.Lease, Verdict: Accepted}})
		}
	}
	a.mu.Unlock()
	for _, m := range out {
		if err := l.send(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// read handles what the daemon says; it returns why the link ended.
func (l *agentLink) read(ctx context.Context) error {
	for {
		m, err := l.link.Receive(ctx)
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		if err := l.handle(ctx, m); err != nil {
			if broken := l.agent.journal.failed(); broken != nil {
				l.agent.fail(broken)
			}
			return err
		}
	}
}

func (l *agentLink) handle(ctx context.Context, m Message) error {
	a := l.agent
	switch {
	case m.Offer != nil:
		answer, err := a.consider(*m.Offer)
		if err != nil {
			return err
		}
		return l.send(ctx, answer)
	case m.Start != nil:
		return a.start(*m.Start, l.welcome.TTL)
	case m.Pulse != nil:
		l.pulse(*m.Pulse)
	case m.Completed != nil:
		return a.settle(m.Completed.Lease)
	case m.Cancel != nil:
		a.mu.Lock()
		defer a.mu.Unlock()
		if at := a.attempts[m.Cancel.Lease]; at != nil {
			at.end(errCancelled)
		}
	case m.Drain != nil:
		a.mu.Lock()
		defer a.mu.Unlock()
		a.draining = m.Drain.On
	case m.Goodbye != nil:
		return fmt.Errorf("the daemon closed the link: %s", m.Goodbye.Reason)
	}
	return nil // a message of a newer daemon
}

func setOf(ids []string) map[string]bool {
	s := make(map[string]bool, len(ids))
	for _, id := range ids {
		s[id] = true
	}
	return s
}
