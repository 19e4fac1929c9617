// An administrator who takes and gives back an exclusive operation all the time: the log always has something to write, and
// the epochs that come of it are held against each other.

package seeds

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/bubble"
)

// The scope that any member may take, and the pause between two acts.
const (
	lockScope = fsm.TrustRootRotation
	lockPause = 250 * time.Millisecond
)

// taken is one operation that was certainly started.
type taken struct {
	call, answer int64 // on the traces' time scale
	epoch        fsm.Epoch
}

// locks is the administrator.
type locks struct {
	stop context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex
	history []taken
	unknown int // proposals of which it was not told what became
}

// startLocks acts through one daemon after the other until halt.
func startLocks(ctx context.Context, node func(i int) *bubble.Node) *locks {
	l := &locks{}
	ctx, l.stop = context.WithCancel(ctx)
	l.work.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			l.act(ctx, node(i).Coordination())
			pass(ctx, lockPause)
		}
	})
	return l
}

// act takes the scope when it is free or abandoned, and gives it back when this
// process has it. Errors are what faults lead to.
func (l *locks) act(ctx context.Context, engine cluster.Backend) {
	self, v := engine.Self(), engine.View()
	start := fsm.StartExclusiveOperation{Scope: lockScope, Owner: self.Node, Incarnation: self.Incarnation}
	for _, x := range v.Exclusive {
		if x.Scope != lockScope {
			continue
		}
		if x.Owner == self.Node && x.Incarnation == self.Incarnation {
			_, _ = l.propose(ctx, engine, fsm.CompleteExclusiveOperation{Scope: lockScope, Owner: x.Owner, Incarnation: x.Incarnation, Epoch: x.Epoch})
			return
		}
		start.Abandoned = x.Epoch // refused while its owner still runs
	}
	call := trace.Mono(time.Now())
	commit, err := l.propose(ctx, engine, start)
	if err != nil || commit.Replay {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history = append(l.history, taken{call, trace.Mono(time.Now()), commit.Epoch})
}

func (l *locks) propose(ctx context.Context, engine cluster.Backend, c fsm.Command) (cluster.Commit, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	commit, err := engine.Propose(ctx, fsm.Proposal{Request: cluster.NewRequestID(), Command: c})
	if cluster.OutcomeUnknown(err) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.unknown++
	}
	return commit, err
}

// taken is what was taken so far.
func (l *locks) taken() []taken {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.history)
}

// halt ends the administrator.
func (l *locks) halt() {
	l.stop()
	l.work.Wait()
}

// verdict: an operation that began after another one was answered has a higher epoch.
func (l *locks) verdict() (count int, err error) {
	history := l.taken()
	for _, a := range history {
		for _, b := range history {
			if a.answer < b.call && a.epoch >= b.epoch {
				return len(history), fmt.Errorf("%s was taken under epoch %d, and later under epoch %d", lockScope, a.epoch, b.epoch)
			}
		}
	}
	return len(history), nil
}
