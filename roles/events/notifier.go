// Notifier: carries wake-ups between daemons, on connections of its own and after commit.
//
// NOTIFY inside a transaction that submits, leases or completes would serialise
// every commit of the database behind one lock; here one session per daemon
// sends, coalesced, what has committed before.

package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// channel is the one LISTEN channel of the fleet; databases are not shared between fleets.
const channel = "forgeyard"

// probe is the topic of a notifier's word to itself.
const probe = "probe"

// Timing of the notifier.
const (
	sendEvery  = 5 * time.Millisecond // at most one NOTIFY in this time
	sendBound  = 5 * time.Second
	probeEvery = 10 * time.Second // a session that stays silent for one and a half of it is given up
	retryMost  = 5 * time.Second
)

// Sessions opens sessions that pass no pooler: LISTEN belongs to a session.
type Sessions interface {
	Session(ctx context.Context) (*pgx.Conn, error)
}

// Notifier connects a bus with those of the other daemons.
type Notifier struct {
	bus   *Bus
	db    Sessions
	self  string // marks what this process sent
	log   *slog.Logger
	heard atomic.Int64 // when the listening session last proved alive, in nanoseconds since born
	born  time.Time
	probe time.Duration // probeEvery
}

// NewNotifier makes a notifier; self must differ between processes, such as an
// incarnation id. Run it.
func NewNotifier(bus *Bus, db Sessions, self string, logger *slog.Logger) *Notifier {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Notifier{bus: bus, db: db, self: self, log: logger, born: time.Now(), probe: probeEvery}
}

// Run sends and listens until ctx ends. While PostgreSQL is away it tries
// again; when it is back every subscriber is woken once, for anything may have
// been missed.
func (n *Notifier) Run(ctx context.Context) error {
	wait := 100 * time.Millisecond
	quiet := false
	for ctx.Err() == nil {
		began := time.Now()
		err := n.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > n.probe {
			wait, quiet = 100*time.Millisecond, false
		}
		if !quiet { // said once, not at every try
			n.log.Info("wake-ups from other daemons are not heard; polling covers for them", "err", err)
			quiet = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, retryMost)
	}
	return nil
}

// session listens on one connection and sends on another until either fails or
// the listening one falls silent: a half-open one reports no error, ever.
func (n *Notifier) session(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	in, err := n.open(ctx)
	if err != nil {
		return err
	}
	defer closeSession(in)
	out, err := n.open(ctx)
	if err != nil {
		return err
	}
	defer closeSession(out)
	if _, err := in.Exec(ctx, "LISTEN "+channel); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	n.hear()
	n.bus.wake(Topics()...)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		cancel(n.send(ctx, out))
	}()
	err = n.listen(ctx, in)
	cancel(err)
	<-sent
	return context.Cause(ctx)
}

func (n *Notifier) open(ctx context.Context) (*pgx.Conn, error) {
	ctx, done := context.WithTimeout(ctx, sendBound)
	defer done()
	c, err := n.db.Session(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a session: %w", err)
	}
	return c, nil
}

func closeSession(c *pgx.Conn) {
	ctx, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	_ = c.Close(ctx) // given up whether it can say goodbye or not
}

// listen wakes the subscribers of what other daemons say.
func (n *Notifier) listen(ctx context.Context, c *pgx.Conn) error {
	for {
		m, err := c.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("wait for a notification: %w", err)
		}
		n.receive(m.Payload)
	}
}

// receive acts on a notification. Any text may come: who can write to the database can notify.
func (n *Notifier) receive(text string) {
	switch from, topics, ok := parse(text); {
	case !ok:
	case from == n.self:
		n.hear() // it came all the way round
	default:
		n.bus.wake(topics...)
	}
}

// payload is the text of a notification: who sends it, and what of.
func payload(self string, topics []string) string { return self + " " + strings.Join(topics, ",") }

func parse(text string) (from string, topics []string, ok bool) {
	from, list, ok := strings.Cut(text, " ")
	return from, strings.Split(list, ","), ok
}

func (n *Notifier) hear() { n.heard.Store(int64(time.Since(n.born))) }

// send passes on what the bus collected, a few milliseconds of it at a time,
// and now and then a word to itself that the listening session must hear.
func (n *Notifier) send(ctx context.Context, c *pgx.Conn) error {
	t := time.NewTicker(n.probe)
	defer t.Stop()
	for {
		topics := []string{probe}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			if silent := time.Since(n.born) - time.Duration(n.heard.Load()); silent > n.probe+n.probe/2 {
				return errors.New("the listening session hears nothing")
			}
		case <-n.bus.more:
			if topics = n.bus.take(); len(topics) == 0 {
				continue
			}
		}
		if err := n.notify(ctx, c, topics); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(sendEvery):
		}
	}
}

func (n *Notifier) notify(ctx context.Context, c *pgx.Conn, topics []string) error {
	ctx, done := context.WithTimeout(ctx, sendBound)
	defer done()
	if _, err := c.Exec(ctx, "SELECT pg_notify($1, $2)", channel, payload(n.self, topics)); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	return nil
}
