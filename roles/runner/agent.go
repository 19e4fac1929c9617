// Agent: the process that executes what is leased to it. It keeps one link to any one daemon (§114, §115, §121).

package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// Timing holds the durations of the lease protocol. Zero fields take the defaults.
type Timing struct {
	LeaseTTL  time.Duration // 60 s; how long a heartbeat extends a lease
	Heartbeat time.Duration // 10 s
	Margin    time.Duration // 5 s; how long before its own deadline an agent kills a job
	Retry     time.Duration // 2 s; how often what is not answered, an acceptance or the end of an attempt, is sent again
	Poll      time.Duration // 1 s; how often a daemon that holds links looks for orders without being woken
	Claim     time.Duration // 5 s; how long an order sent on a link may stay unanswered before it is sent again
	Request   time.Duration // 5 s; bound of one exchange or database call
	Blind     time.Duration // 5 s; how long a daemon that cannot reach the database keeps the links of its agents
	Still     time.Duration // 25 s; how long the work of an attempt may stand still under its heartbeats; see Progress
}

// WithDefaults fills the zero fields.
func (t Timing) WithDefaults() Timing {
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{
		{&t.LeaseTTL, time.Minute}, {&t.Heartbeat, 10 * time.Second}, {&t.Margin, 5 * time.Second}, {&t.Retry, 2 * time.Second},
		{&t.Poll, time.Second}, {&t.Claim, 5 * time.Second}, {&t.Request, 5 * time.Second}, {&t.Blind, 5 * time.Second}, {&t.Still, 25 * time.Second},
	} {
		if *d.v <= 0 {
			*d.v = d.d
		}
	}
	return t
}

// AgentConfig is everything an agent uses of the outside.
type AgentConfig struct {
	Endpoints []string // host:port of daemons' agent sockets, tried in turn; names may resolve to several (§119)
	Dialer    Dialer
	Resolve   func(ctx context.Context, host string) ([]string, error) // nil: the system's resolver
	Dir       string                                                   // the agent's own; one process at a time
	Slots     int                                                      // leases held at once, 1 to MaxSlots
	Labels    []string
	Build     string
	Executor  Executor
	Disk      int64 // most bytes that what one attempt is given unpacks to; 0 means 10 GiB, as Limits.Disk
	// Grace is how long Run waits for running attempts once it shall end; 0 kills them at once.
	Grace time.Duration
	// JournalLimit is how many entries the journal may have before what is closed
	// in it is put aside; 0 means 50,000.
	JournalLimit int
	Timing       Timing // LeaseTTL and Heartbeat come from the daemon instead
	Logger       *slog.Logger
	Phase        func(part string) // hears what Run does next; nil: nobody does
}

// Agent executes leases. Make one with NewAgent and Run it once.
type Agent struct {
	cfg       AgentConfig
	session   string
	log       *slog.Logger
	journal   *journal
	tasks     sync.WaitGroup          // one goroutine per running attempt
	logs      sync.WaitGroup          // one goroutine per log that is not stored yet
	fail      context.CancelCauseFunc // the journal cannot be written: stop, it is what prevents a second start
	transfers context.Context         // of logs; ends last
	streams   chan struct{}           // a token for each open transfer stream
	hurry     chan struct{}           // closed by Hurry
	hurryOnce sync.Once
	clear     func(workspace) error // removes what an ended attempt leaves behind; may take long

	mu          sync.Mutex
	attempts    map[string]*attempt // by lease
	link        *agentLink          // nil while none is up
	linkChanged chan struct{}       // closed when link changes
	shipping    int                 // logs under way
	closing     bool                // Run shall end: nothing new is taken
	draining    bool                // the daemon wants nothing new to be taken
}

// NewAgent checks the configuration and takes a new session id, which stays the
// same for as long as the agent runs, whatever happens to its links (§118).
func NewAgent(cfg AgentConfig) (*Agent, error) {
	cfg.Timing = cfg.Timing.WithDefaults()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Phase == nil {
		cfg.Phase = func(string) {}
	}
	switch {
	case len(cfg.Endpoints) == 0:
		return nil, errors.New("agent: no daemon endpoint is given")
	case cfg.Dialer == nil || cfg.Executor == nil || cfg.Dir == "":
		return nil, errors.New("agent: dialer, executor and directory are required")
	case cfg.Slots < 1 || cfg.Slots > MaxSlots:
		return nil, fmt.Errorf("agent: %d slots are not within 1 and %d", cfg.Slots, MaxSlots)
	}
	if cfg.Disk <= 0 {
		cfg.Disk = Limits{}.withDefaults().Disk
	}
	if err := ValidateLabels(cfg.Labels); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	id, err := ulid.New(ulid.Now(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("agent: session id: %w", err)
	}
	return &Agent{
		cfg: cfg, session: id.String(), log: cfg.Logger, attempts: map[string]*attempt{}, linkChanged: make(chan struct{}),
		streams: make(chan struct{}, maxStreams), hurry: make(chan struct{}), clear: workspace.remove,
	}, nil
}

// Session is the id of this agent process.
func (a *Agent) Session() string { return a.session }

// quietBound is how long a new process waits for what an earlier one left
// running. A supervisor kills at once when its agent is gone.
const quietBound = 30 * time.Second

// Run serves until ctx ends. Then it takes nothing new, lets running attempts
// end for AgentConfig.Grace unless Hurry is called, kills the rest, tells a
// daemon that those leases are given up (bounded by Timing.Request) and returns
// nil. It returns an error only when the agent's directory cannot be used, or no
// longer.
func (a *Agent) Run(ctx context.Context) error {
	ctx, a.fail = context.WithCancelCause(ctx)
	defer a.fail(nil)
	a.cfg.Phase("opening the agent's directory")
	j, err := openJournal(a.cfg.Dir, a.cfg.JournalLimit)
	if err != nil {
		return err
	}
	a.journal = j
	a.cfg.Phase("waiting for what an earlier process left running")
	if err := awaitQuiet(ctx, a.cfg.Dir, quietBound); err != nil {
		return errors.Join(err, j.close())
	}
	// Links and transfers outlive ctx: what ends during the grace, and what is given up, is reported on them.
	serving, quit := context.WithCancel(context.WithoutCancel(ctx))
	defer quit()
	a.transfers = serving
	a.cfg.Phase("reading what an earlier process left behind")
	if err := a.adopt(); err != nil {
		quit()
		a.logs.Wait()
		return errors.Join(err, j.close())
	}
	linked := make(chan struct{})
	go func() {
		defer close(linked)
		a.keepLinked(serving)
	}()
	a.cfg.Phase("running")
	<-ctx.Done()
	a.cfg.Phase("jobs have their grace")
	a.close()
	a.await()
	a.cfg.Phase("ending jobs")
	a.stop()
	a.tasks.Wait()
	a.cfg.Phase("reporting what has ended")
	a.flush()
	quit()
	a.cfg.Phase("bringing logs away")
	a.logs.Wait()
	<-linked
	a.cfg.Phase("closing the agent's directory")
	return errors.Join(j.failed(), j.close())
}

// Hurry ends the grace of a Run that shall end. It may be called at any time and repeatedly.
func (a *Agent) Hurry() { a.hurryOnce.Do(func() { close(a.hurry) }) }

// adopt answers for what an earlier process of this agent started: a result
// that was not acknowledged is sent again, a start without a result is given
// up, the rest of a log is brought away. Nothing is ever started twice.
func (a *Agent) adopt() error {
	for lease, e := range a.journal.open {
		at := &attempt{offer: Offer{Lease: lease, Job: e.Job, Attempt: e.Attempt, Epoch: e.Epoch, Generation: e.Generation}}
		if e.What == EntryFinish && e.Outcome != "" {
			at.report = Message{Complete: &Complete{
				Lease: lease, Outcome: e.Outcome, ExitCode: e.ExitCode, Duration: e.Duration, Reason: e.Reason, LogBytes: e.LogBytes,
			}}
		} else {
			at.report = Message{Release: &Release{Lease: lease, Reason: "the agent process that ran it ended", Started: true}}
		}
		at.phase = phaseEnded
		a.attempts[lease] = at
	}
	left, err := leftSpools(a.cfg.Dir)
	for lease, s := range left {
		a.keepLog(lease, s)
	}
	return err
}

// keepLog brings a log away in a goroutine of its own.
func (a *Agent) keepLog(lease string, s *spool) {
	a.mu.Lock()
	a.shipping++
	a.mu.Unlock()
	a.logs.Go(func() {
		a.ship(lease, s)
		a.mu.Lock()
		a.shipping--
		a.mu.Unlock()
	})
}

// close refuses everything new from now on.
func (a *Agent) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closing = true
	if a.link != nil {
		a.link.announce()
	}
}

// await gives running attempts their grace.
func (a *Agent) await() {
	if a.cfg.Grace <= 0 || a.journal.failed() != nil {
		return
	}
	idle := make(chan struct{})
	go func() { // ends with the tasks, which Run waits for
		defer close(idle)
		a.tasks.Wait()
	}()
	grace := time.NewTimer(a.cfg.Grace)
	defer grace.Stop()
	select {
	case <-idle:
	case <-grace.C:
	case <-a.hurry:
	}
}

// stop makes every running attempt end.
func (a *Agent) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range a.attempts {
		at.end(errStopping)
	}
}

// flush waits until a daemon has answered for every ended attempt and has its log, bounded.
func (a *Agent) flush() {
	deadline := time.NewTimer(a.cfg.Timing.Request)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for a.unreported() && a.current() != nil {
		select {
		case <-tick.C:
		case <-deadline.C:
			return
		}
	}
}

func (a *Agent) unreported() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range a.attempts {
		if at.phase == phaseEnded {
			return true
		}
	}
	return a.shipping > 0
}

func (a *Agent) current() *agentLink {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.link
}
