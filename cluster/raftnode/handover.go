// A hand-over of leadership that never ends: the library then refuses every proposal, in later terms too (hashicorp/raft#696).
//
// A step-down in the middle of a transfer can leave the library's transfer
// waiting for ever: for an answer to TimeoutNow, which the transport bounds, or
// to hand a request to a replication that has ended, which nothing bounds. The
// mark "in progress" survives the leadership; nothing but a new process clears it.

package raftnode

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// noteHandover learns from the outcome of a proposal whether the library refuses all of them.
func (n *Node) noteHandover(err error) {
	if errors.Is(err, raft.ErrLeadershipTransferInProgress) {
		n.handover.keepOn(n.cfg.Now())
		return
	}
	n.handover.stop()
}

// handoverLimit is far above what a hand-over takes: it waits an election
// timeout for its heir to catch up, and another one for the heir's election.
func (n *Node) handoverLimit() time.Duration { return 10 * n.cfg.Timers.ElectionTimeout }

// handoverStuck returns for how long proposals have been refused. One is made at
// each look, or a leader that nobody asks for anything would not be told that
// the hand-over is over.
func (n *Node) handoverStuck(s *stall, now time.Time, longest time.Duration) time.Duration {
	d := s.look(now, longest)
	if d > 0 && n.raft.State() != raft.Leader {
		n.handover.stop()
		return 0
	}
	if d > longest {
		n.calls.start(func() { _ = n.barrier() })
	}
	return d
}
