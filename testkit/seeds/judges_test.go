// The judges themselves: each finds what was planted for it.

package seeds

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReplicasThatDiffer(t *testing.T) {
	r := newReplicas()
	r.heard("a#1", 7, [32]byte{1})
	r.heard("b#1", 7, [32]byte{1})
	r.heard("a#2", 7, [32]byte{1}) // replayed after a restart
	compared, differ := r.verdict()
	require.Equal(t, 1, compared)
	require.Empty(t, differ)
	r.heard("c#1", 7, [32]byte{2})
	_, differ = r.verdict()
	require.Len(t, differ, 1)
}

func TestLocksThatFallBack(t *testing.T) {
	l := &locks{history: []taken{{call: 1, answer: 2, epoch: 5}, {call: 3, answer: 9, epoch: 7}, {call: 4, answer: 8, epoch: 6}}}
	count, err := l.verdict()
	require.Equal(t, 3, count)
	require.NoError(t, err, "two at the same time may have either order")
	l.history = append(l.history, taken{call: 10, answer: 11, epoch: 6})
	_, err = l.verdict()
	require.Error(t, err)
}

func TestFaultsThatNeverHappened(t *testing.T) {
	tally := NewTally()
	tally.Add(Loss, 3)
	require.Equal(t, []Kind{Cut}, tally.Missing(map[Kind]int{Loss: 1, Cut: 2}))
	tally.Add(Cut, 1)
	require.Empty(t, tally.Missing(map[Kind]int{Loss: 1, Cut: 2}))
}

func TestSickDisk(t *testing.T) {
	d := newDisk(1, 0)
	require.NoError(t, d.write())
	d.set(func(d *disk) { d.fail = 1 })
	require.ErrorIs(t, d.write(), errDisk)
	d.set(func(d *disk) { d.fail, d.slow = 0, time.Millisecond })
	require.NoError(t, d.write())
	d.hangUp()
	done := make(chan error, 1)
	go func() { done <- d.write() }()
	require.Eventually(t, func() bool { _, _, hung := d.counts(); return hung == 1 }, time.Minute, time.Millisecond)
	d.release()
	require.ErrorIs(t, <-done, errDisk)
	slowed, failed, hung := d.counts()
	require.Equal(t, []int{1, 1, 1}, []int{slowed, failed, hung})
}

func TestStartedTwice(t *testing.T) {
	w := &work{starts: map[string]int{"one": 1, "two": 2}}
	started, twice := w.twice()
	require.Equal(t, 2, started)
	require.Len(t, twice, 1)
}
