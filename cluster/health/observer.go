// Observer gathers what one node knows, so that a status can be answered at once.

package health

import (
	"context"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/placement"
	"github.com/forgeyard/forgeyard/fsm"
)

// Bounds of observing.
const (
	// ProbeInterval is how often Run probes every other member, and how long one probe may take.
	ProbeInterval = time.Second
	// AskTimeout is how long a status waits for the leader's facts.
	AskTimeout = 500 * time.Millisecond
	// watchInterval is how exactly changes of the leader are dated.
	watchInterval = 500 * time.Millisecond
)

// Coordination is what an Observer needs of a cluster.Backend.
type Coordination interface {
	Self() cluster.Identity
	View() cluster.View
	Leadership() (cluster.Leadership, bool)
	Reports() []cluster.NodeReport
	Peers() []cluster.Peer
}

// Config is what an Observer is made of.
type Config struct {
	Coordination Coordination
	Own          func() cluster.HealthReport // this process now; never blocks
	// Backoff returns the planner's running delays while this node leads; may be nil.
	Backoff func() []placement.Delay
	// Ask gets the facts of the leader, another node; nil when there is no other node.
	Ask func(ctx context.Context, leader fsm.NodeID) (Facts, error)
	// Probe tries to reach a member; nil when there is no other node.
	Probe    func(ctx context.Context, n fsm.NodeID) error
	Election time.Duration // election timeout; 0 means DefaultElection
	Now      func() time.Time
}

// Observer is safe for concurrent use.
type Observer struct {
	cfg Config

	mu     sync.Mutex
	leader fsm.NodeID
	since  time.Time // of leader; zero before the first look
	office office    // the last leadership that was seen
	turns  uint64    // how many were
	probes map[fsm.NodeID]Probe
}

// New makes an Observer; it knows more once Run runs.
func New(cfg Config) *Observer {
	return &Observer{cfg: cfg, probes: map[fsm.NodeID]Probe{}}
}

// Run dates changes of the leader and probes the other members until ctx ends;
// it returns after the last probe has ended.
func (o *Observer) Run(ctx context.Context) {
	var probing sync.WaitGroup
	defer probing.Wait()
	probing.Go(func() { o.every(ctx, ProbeInterval, o.probeAll) })
	o.every(ctx, watchInterval, func(context.Context) { o.look() })
}

func (o *Observer) every(ctx context.Context, d time.Duration, do func(context.Context)) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		do(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look notes the leader that is known now.
func (o *Observer) look() cluster.View {
	v := o.cfg.Coordination.View()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() || v.KnownLeader != o.leader {
		o.leader, o.since = v.KnownLeader, o.cfg.Now()
	}
	if now := (office{v.KnownLeader, v.RaftTerm}); !now.leader.IsZero() && now != o.office {
		o.office = now
		o.turns++
	}
	return v
}

// office is a leadership: a node that is elected again leads another term.
type office struct {
	leader fsm.NodeID
	term   uint64
}

// LeaderChanges is how many leaderships this process has seen; the first counts.
func (o *Observer) LeaderChanges() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.turns
}

// probeAll probes all other members at once: one dead node must not delay what
// is known of the rest.
func (o *Observer) probeAll(ctx context.Context) {
	if o.cfg.Probe == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ProbeInterval)
	defer cancel()
	var wg sync.WaitGroup
	self := o.cfg.Coordination.Self().Node
	for _, m := range o.cfg.Coordination.View().Members {
		if m.Node != self {
			wg.Go(func() { o.note(m.Node, o.cfg.Probe(ctx, m.Node)) })
		}
	}
	wg.Wait()
}

func (o *Observer) note(n fsm.NodeID, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.cfg.Now()
	p, before := o.probes[n], o.probes[n].Err
	p.Node, p.Err = n, ""
	if err != nil {
		p.Err = fsm.Clip(err.Error(), fsm.MaxReason)
	} else {
		p.LastOK = now
	}
	if p.Since.IsZero() || (p.Err == "") != (before == "") {
		p.Since = now
	}
	o.probes[n] = p
}

// Facts are what this node knows as the leader; From is zero when it does not lead.
func (o *Observer) Facts() Facts {
	c := o.cfg.Coordination
	if _, leads := c.Leadership(); !leads {
		return Facts{}
	}
	now := o.cfg.Now()
	f := Facts{From: c.Self().Node, Applied: c.View().Index}
	for _, r := range c.Reports() {
		f.Reports = append(f.Reports, ReportFact{HealthReport: r.HealthReport, AgeMS: now.Sub(r.Received).Milliseconds()})
	}
	for _, p := range c.Peers() {
		fact := PeerFact{Node: p.Node, MatchIndex: p.MatchIndex, ContactMS: -1}
		if !p.LastContact.IsZero() {
			fact.ContactMS = now.Sub(p.LastContact).Milliseconds()
		}
		f.Peers = append(f.Peers, fact)
	}
	if o.cfg.Backoff == nil {
		return f
	}
	for _, d := range o.cfg.Backoff() {
		f.Backoff = append(f.Backoff, BackoffFact{Role: d.Role, Node: d.Node, Failures: d.Failures, LeftMS: d.Until.Sub(now).Milliseconds()})
	}
	return f
}

// Observe gathers the input of a status. It waits for nothing but, on a
// follower, at most AskTimeout for the leader's facts.
func (o *Observer) Observe(ctx context.Context) Input {
	in := o.Local()
	if leader := in.View.KnownLeader; in.Facts.From.IsZero() && !leader.IsZero() && o.cfg.Ask != nil && leader != in.Self.Node {
		in.Facts = o.ask(ctx, leader)
		in.Now = o.cfg.Now()
	}
	return in
}

// Local gathers what this node knows without asking another one. It never waits.
func (o *Observer) Local() Input {
	v := o.look()
	in := Input{
		Self: o.cfg.Coordination.Self(), View: v, Own: o.cfg.Own(), Facts: o.Facts(), Election: o.cfg.Election, Now: o.cfg.Now(),
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	in.LeaderSince = o.since
	for _, m := range v.Members {
		if p, ok := o.probes[m.Node]; ok {
			in.Probes = append(in.Probes, p)
		}
	}
	return in
}

// ask returns the leader's facts, or none when it does not answer in time or
// no longer leads; the status then rests on this node's own probes.
func (o *Observer) ask(ctx context.Context, leader fsm.NodeID) Facts {
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	f, err := o.cfg.Ask(ctx, leader)
	if err != nil || f.From != leader {
		return Facts{}
	}
	return f
}
