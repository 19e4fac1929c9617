// Watch: follows the leader's appends and its port, asks the other voters, and campaigns.

package early

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport/echo"
)

// Engine is the node's part in consensus; raftnode.Node is behind it.
type Engine interface {
	Standing() Standing
	// Ask asks a voter what it sees; any error is no testimony.
	Ask(ctx context.Context, voter fsm.NodeID) (Testimony, error)
	// Campaign stands for election at once, unless anything of the standing but
	// the end of the log has changed.
	Campaign(ctx context.Context, s Standing) error
}

// Outside is what early election uses of the world.
type Outside struct {
	Dial    echo.Dial
	Resolve func(fsm.NodeID) (addr string, known bool)
}

// The pace of a watch. An echo each second keeps the rule's two seconds
// satisfied, also when one is lost; questions follow each other closely only
// while a leader is doubted.
const (
	idlePause  = 500 * time.Millisecond // without a leader to watch
	echoEvery  = time.Second
	echoAgain  = 200 * time.Millisecond // after silence
	echoWait   = 30 * time.Millisecond
	doubtPause = 15 * time.Millisecond
	askWait    = 40 * time.Millisecond // for the other voters' testimony
	orderWait  = 10 * time.Millisecond // for the engine to take the order to campaign
)

// Watch watches whichever leader the engine follows. Run it once.
type Watch struct {
	self   fsm.NodeID
	engine Engine
	out    Outside
	log    *slog.Logger
	now    func() time.Time

	mu   sync.Mutex
	eye  Sight
	rest Rested

	// Of Run's goroutine alone.
	socket *echo.Socket
	at     target
	asked  time.Time     // when the last question to the port was sent
	pause  time.Duration // from then to the next, while the leader appends
	doubt  doubt
}

// doubt is what the rule said last of a silent leader; zero when none is doubted.
type doubt struct {
	of      Case
	finding Finding
}

// target is what the socket is connected to.
type target struct {
	node fsm.NodeID
	addr string
}

// New makes a watch for a node.
func New(self fsm.NodeID, engine Engine, out Outside, log *slog.Logger, now func() time.Time) *Watch {
	return &Watch{self: self, engine: engine, out: out, log: log, now: now}
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	defer w.turnTo(target{})
	for {
		pause := time.NewTimer(w.look(ctx))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// look looks once and says when to look again.
func (w *Watch) look(ctx context.Context) time.Duration {
	s := w.engine.Standing()
	w.conclude(s)
	if f := sees(w.self, s, Sight{}, Rested{}, w.now()); f == NotFollowing || f == NoVote || !w.face(s.Leader) {
		return idlePause
	}
	now := w.now()
	quiet := now.Sub(s.Appended)
	if quiet <= Silence {
		if due := w.pause - now.Sub(w.asked); due > 0 {
			return min(due, Silence-quiet+time.Millisecond)
		}
	}
	w.question()
	if quiet > Silence {
		w.doubt = doubt{s.about(), w.judge(ctx)}
		return doubtPause
	}
	return time.Millisecond
}

// conclude ends a doubt: the leader appends again, or another one leads. The log says
// why it was not this node that elected that one early, or whoever waits for the timers
// would not know.
func (w *Watch) conclude(s Standing) {
	was := w.doubt
	switch {
	case was == doubt{} || s.Leader.IsZero():
		return
	case s.about() != was.of && was.finding != Campaign:
		w.log.Info("a silent leader has a successor", "leader", was.of.Leader, "term", was.of.Term, "successor", s.Leader,
			"finding", was.finding)
	case s.about() == was.of && w.now().Sub(s.Appended) > Silence:
		return
	}
	w.doubt = doubt{}
}

// face turns the socket to the leader; false when there is no way to it.
func (w *Watch) face(leader fsm.NodeID) bool {
	addr, known := w.out.Resolve(leader)
	if !known {
		return false
	}
	if to := (target{leader, addr}); w.socket == nil || to != w.at {
		w.turnTo(to)
	}
	return w.socket != nil
}

// turnTo forgets what the socket before has seen: an echo counts on its own socket only.
func (w *Watch) turnTo(to target) {
	if w.socket != nil {
		_ = w.socket.Close()
	}
	w.socket, w.at, w.asked = nil, to, time.Time{}
	w.mu.Lock()
	w.eye = Sight{}
	w.mu.Unlock()
	if to.addr == "" {
		return
	}
	conn, err := w.out.Dial(to.addr)
	if err != nil {
		w.log.Debug("the leader's port cannot be watched", "leader", to.node, "address", to.addr, "error", err)
		return
	}
	w.socket = echo.NewSocket(conn, w.now)
}

// question asks the port once and keeps what was seen.
func (w *Watch) question() {
	reply, err := w.socket.Ask(echoWait)
	w.asked = reply.Sent
	if err != nil {
		w.turnTo(target{})
		return
	}
	w.pause = echoEvery
	w.mu.Lock()
	defer w.mu.Unlock()
	switch reply.Outcome {
	case echo.Silent:
		w.pause = echoAgain
	case echo.Echoed:
		w.eye = Sight{Echoed: reply.Sent, EchoOf: reply.Incarnation}
	case echo.Refused:
		w.eye.Refused = reply.Sent
	}
}

// judge campaigns when this node and a majority see that the leader is gone, and says
// what it found.
func (w *Watch) judge(ctx context.Context) Finding {
	s := w.engine.Standing()
	if f, _ := w.finding(s); f != Gone {
		return f
	}
	said := w.ask(ctx, s)
	// Everything is looked at again: asking took a while.
	s = w.engine.Standing()
	w.mu.Lock()
	found := decide(w.self, s, w.eye, said, w.rest, w.now())
	if found == Campaign {
		w.rest.Campaigned = w.now()
	}
	w.mu.Unlock()
	if found != Campaign {
		return found
	}
	w.log.Info("campaigning early: the leader's process is gone", "leader", s.Leader, "incarnation", s.Incarnation, "term", s.Term,
		"silent", w.now().Sub(s.Appended).Round(time.Millisecond))
	ctx, cancel := context.WithTimeout(ctx, orderWait)
	defer cancel()
	if err := w.engine.Campaign(ctx, s); err != nil {
		w.log.Info("no early campaign", "error", err)
	}
	return found
}

// finding is what this node sees by itself. Once it says that a leader is gone,
// it says so of no other for a while.
func (w *Watch) finding(s Standing) (Finding, Position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	f := sees(w.self, s, w.eye, w.rest, now)
	if f == Gone && w.rest.Case != s.about() {
		w.rest.Case, w.rest.Testified = s.about(), now
	}
	return f, s.Position
}

// Testify answers another voter.
func (w *Watch) Testify() Testimony {
	s := w.engine.Standing()
	f, position := w.finding(s)
	return Testimony{Case: s.about(), Gone: f == Gone, Position: position}
}

// ask collects the testimony of the other voters.
func (w *Watch) ask(ctx context.Context, s Standing) map[fsm.NodeID]Testimony {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	said := map[fsm.NodeID]Testimony{}
	for _, v := range s.Voters {
		if v == w.self || v == s.Leader {
			continue
		}
		wg.Go(func() {
			t, err := w.engine.Ask(ctx, v)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			said[v] = t
		})
	}
	wg.Wait()
	return said
}
