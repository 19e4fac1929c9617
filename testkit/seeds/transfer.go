// Hand-overs: the leader is asked to give its office to another voter, and may be cut off while it does.

package seeds

import (
	"context"
	"errors"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
)

const (
	// handOverPatience bounds the asking; the engine has bounds of its own.
	handOverPatience = 5 * time.Second
	// cutWithin is how soon after the asking the leader is cut off at the latest: a hand-over takes some round trips.
	cutWithin = 8 * time.Millisecond
)

// handOver asks the leader to step down, as a daemon that stops asks its engine.
// For CutTransfer the leader is isolated a moment later.
func (n *nemesis) handOver(s Step) {
	s.Who = Leader
	node := n.victim(s)
	if node == nil {
		return
	}
	engine := node.Coordination()
	n.w.side.Go(func() {
		ctx, cancel := context.WithTimeout(n.w.ctx, handOverPatience)
		defer cancel()
		err := engine.StepDown(ctx, "the schedule has it")
		n.w.note("%s was asked to hand over: %v", node.Name, err)
		switch {
		case err == nil && s.Kind == Transfer:
			n.w.tally.Add(Transfer, 1)
		case err != nil && !errors.Is(err, cluster.ErrNotLeader):
			n.w.tally.Add(Interrupted, 1)
		}
	})
	if s.Kind == CutTransfer {
		<-time.After(time.Duration(s.Pick % uint64(cutWithin)))
		n.sever(s, node)
	}
}
