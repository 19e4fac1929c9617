// The pure policies: what the watcher says, what a supervisor does, budgets and back-off.

package actors

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/forgeyard/forgeyard/fsm"
)

func TestWatcherCommittedOnly(t *testing.T) {
	for name, c := range map[string]struct {
		told told
		want fsm.Epoch
		next told
		says []any
	}{
		"nothing wanted":         {told{}, 0, told{}, nil},
		"granted":                {told{}, 7, told{7, 7}, []any{&spawn{7}}},
		"unchanged":              {told{7, 7}, 7, told{7, 7}, nil},
		"lost":                   {told{7, 7}, 0, told{0, 7}, []any{&poison{7}}},
		"renewed":                {told{7, 7}, 9, told{9, 9}, []any{&poison{7}, &spawn{9}}},
		"older view":             {told{9, 9}, 7, told{9, 9}, nil},
		"older view, after loss": {told{0, 9}, 7, told{0, 9}, nil},
		"again, after loss":      {told{0, 9}, 9, told{0, 9}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			next, says := c.told.next(c.want)
			require.Equal(t, c.next, next)
			require.Equal(t, c.says, says)
		})
	}
}

// Doubled, coalesced and older views cause no other message than the newest view alone would.
func TestWatcherIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w told
		spawned := map[fsm.Epoch]int{}
		open := fsm.Epoch(0)
		for _, want := range rapid.SliceOf(rapid.Uint64Range(0, 6)).Draw(t, "views") {
			before := w
			var says []any
			w, says = w.next(fsm.Epoch(want))
			for _, m := range says {
				switch m := m.(type) {
				case *spawn:
					require.Zero(t, open, "spawn while a tree is open")
					require.Greater(t, m.epoch, before.highest)
					spawned[m.epoch]++
					open = m.epoch
				case *poison:
					require.Equal(t, open, m.epoch, "poison of what was asked for")
					open = 0
				}
			}
			again, none := w.next(fsm.Epoch(want))
			require.Equal(t, w, again)
			require.Empty(t, none, "the same view twice")
			require.Equal(t, open, w.live)
		}
		for e, n := range spawned {
			require.Equal(t, 1, n, "epoch %d", e)
		}
	})
}

// Under every order of wants and ends a seat holds one tree at a time, each epoch once.
func TestSeatPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o occupancy
		var order []fsm.Epoch
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "the tree ends") && o.have != 0 {
				o.have, o.ending = 0, false
			}
			if rapid.IntRange(0, 20).Draw(t, "close") == 0 {
				o.closed = true
			}
			want := fsm.Epoch(rapid.Uint64Range(0, 8).Draw(t, "want"))
			switch o.next(want) {
			case stepSpawn:
				require.Zero(t, o.have)
				require.False(t, o.closed)
				require.NotZero(t, want)
				order = append(order, want)
				o.have, o.last = want, want
			case stepPoison:
				require.NotEqual(t, want, o.have)
				require.False(t, o.ending, "poisoned twice")
				o.ending = true
			case stepNothing:
				wrong := o.have != 0 && o.have != want && !o.ending
				missing := o.have == 0 && want > o.last && !o.closed
				require.False(t, wrong || missing, "%+v wants %d", o, want)
			}
		}
		require.True(t, slices.IsSorted(order))
		require.Len(t, slices.Compact(slices.Clone(order)), len(order))
	})
}

func TestBudget(t *testing.T) {
	f := failures{budget: Budget{Restarts: 3, Window: 10 * time.Second}}
	at := time.Now()
	for i := range 3 {
		require.True(t, f.add(at.Add(time.Duration(i)*time.Second)))
	}
	require.False(t, f.add(at.Add(3*time.Second)), "the fourth within the window")
	require.True(t, f.add(at.Add(11*time.Second)), "the first two are forgotten")
	require.LessOrEqual(t, len(f.times), 4, "old failures are dropped")
}

func TestBackoff(t *testing.T) {
	b := Backoff{First: 100 * time.Millisecond, Max: time.Second}
	for n, middle := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		for range 100 {
			d := b.wait(n)
			require.GreaterOrEqual(t, d, middle*time.Millisecond*8/10)
			require.LessOrEqual(t, d, middle*time.Millisecond*12/10)
		}
	}
	require.LessOrEqual(t, b.wait(1_000), b.Max*12/10)
}
