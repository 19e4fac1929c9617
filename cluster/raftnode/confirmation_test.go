// What counts as proof that a view was current.

package raftnode

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnswerCountsOnceItsIndexIsApplied(t *testing.T) {
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	var c confirmation
	require.True(t, c.at().IsZero())
	c.answered(answer{at: at(1), index: 10}, 10)
	require.Equal(t, at(1), c.at())
	// The leader had applied more than this node: its state machine may hang.
	c.answered(answer{at: at(2), index: 12}, 10)
	c.answered(answer{at: at(3), index: 14}, 10)
	require.Equal(t, at(1), c.at())
	c.appliedTo(13)
	require.Equal(t, at(2), c.at())
	c.appliedTo(14)
	require.Equal(t, at(3), c.at())
	// It never goes back, and no time is no proof.
	c.raise(at(1))
	c.raise(time.Time{})
	require.Equal(t, at(3), c.at())
	// However many come under steady load, those that wait longest are kept.
	for i := range 3 * pingsInFlight {
		c.answered(answer{at: at(10 + i), index: uint64(100 + i)}, 14)
	}
	require.Len(t, c.waiting, pingsInFlight)
	c.appliedTo(100)
	require.Equal(t, at(10), c.at())
	c.answered(answer{at: at(50), index: 101}, 100)
	c.appliedTo(101)
	require.Equal(t, at(50), c.at(), "the newest of an index counts")
	// It may be reached between the caller's look and this call.
	c.answered(answer{at: at(60), index: 101}, 100)
	require.Equal(t, at(60), c.at())
}
