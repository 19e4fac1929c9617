// Hand-overs: the leader is asked to give its office to another voter, and may be cut off while it does.

package seeds

import (
	"context"
	"errors"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/raftnode"
)

const (
	// handOverPatience bounds the asking; the engine has bounds of its own.
	handOverPatience = 5 * time.Second
	// cutWithin is how soon after the asking the leader is cut off at the latest: a hand-over takes some round trips.
	cutWithin = 8 * time.Millisecond
	// atOnce is before the first round trip of a hand-over has ended.
	atOnce = time.Millisecond
)

// handOver asks the leader to step down, as a daemon that stops asks its engine.
// For CutTransfer the leader is isolated a moment later, if it has not answered yet.
func (n *nemesis) handOver(s Step) {
	s.Who = Leader
	node := n.victim(s)
	if node == nil {
		return
	}
	engine, answered := node.Coordination(), make(chan error, 1)
	n.w.side.Go(func() {
		ctx, cancel := context.WithTimeout(n.w.ctx, handOverPatience)
		defer cancel()
		answered <- engine.StepDown(ctx, "the schedule has it")
	})
	var amid bool
	if s.Kind == CutTransfer {
		select {
		case err := <-answered:
			answered <- err
		case <-time.After(time.Duration(s.Pick % uint64(cutWithin))):
			amid = true
			cut := s
			cut.Kind = Isolate
			n.sever(cut, node)
		}
	}
	n.w.side.Go(func() {
		err := <-answered
		n.w.note("%s was asked to hand over: %v", node.Name, err)
		for _, kind := range handedOver(err, amid) {
			n.w.tally.Add(kind, 1)
		}
	})
}

// handedOver is what the answer of a leader that was asked to hand over counts as;
// amid: it was cut off before it answered. One that does not lead, is closed, or
// whose disk hangs begins no hand-over.
func handedOver(err error, amid bool) (kinds []Kind) {
	for _, none := range []error{cluster.ErrNotLeader, cluster.ErrEngineClosed, raftnode.ErrStoreStalled} {
		if errors.Is(err, none) {
			return nil
		}
	}
	switch {
	case amid:
		kinds = append(kinds, CutTransfer)
	case err == nil:
		return []Kind{Transfer}
	}
	if err != nil {
		kinds = append(kinds, Interrupted)
	}
	return kinds
}
