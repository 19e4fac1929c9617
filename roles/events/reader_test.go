// Pages: nothing is missed though transactions commit out of order, and what is gone is said.

package events_test

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/forgeyard/forgeyard/roles/events"
	"github.com/forgeyard/forgeyard/testkit/corpus"
)

func numbers(t require.TestingT, page events.Page) []int {
	out := []int{}
	for _, e := range page.Events {
		var d struct{ N int }
		require.NoError(t, json.Unmarshal(e.Data, &d))
		out = append(out, d.N)
	}
	return out
}

// A transaction that takes its number early and commits late would be missed by
// a reader that follows the numbers alone.
func TestLateCommitIsNotMissed(t *testing.T) {
	p := newPlane(t)
	at, err := events.Head(t.Context(), p.store)
	require.NoError(t, err)
	late, err := p.session().Begin(t.Context())
	require.NoError(t, err)
	_, err = late.Exec(t.Context(), insertSQL, "", 1)
	require.NoError(t, err)
	p.write("", 2) // a higher number, committed first

	page, err := events.Read(t.Context(), p.store, at, "", 10)
	require.NoError(t, err)
	require.Empty(t, page.Events, "what could still be overtaken from below waits")
	require.True(t, page.More)
	require.NoError(t, late.Commit(t.Context()))
	page = p.reads(page.Next, "", 1, 2)
	require.False(t, p.reads(page.Next, "").More)
}

// reads waits until exactly these events of a run, or of all, are there to be
// read, and no more are to come: a transaction of anybody on the server, in another
// database too, holds back what was written after it began.
func (p *plane) reads(after events.Cursor, run string, want ...int) (page events.Page) {
	p.Helper()
	require.Eventually(p, func() bool {
		var err error
		page, err = events.Read(p.Context(), p.store, after, run, 10)
		return err == nil && !page.More && slices.Equal(want, numbers(p, page))
	}, soon, 10*time.Millisecond)
	return page
}

// Readers that page at any moment see every event once and in one order.
func TestConcurrentWritersLoseNothing(t *testing.T) {
	p := newPlane(t)
	at, err := events.Head(t.Context(), p.store)
	require.NoError(t, err)
	const writers, each = 6, 60
	var work sync.WaitGroup
	for w := range writers {
		c := p.session()
		work.Go(func() {
			for n := range each {
				tx, err := c.Begin(t.Context())
				if err == nil {
					_, err = tx.Exec(t.Context(), insertSQL, "", w*each+n)
				}
				if err == nil && n%7 == 3 {
					err = tx.Rollback(t.Context()) // numbers have gaps
					n = -1
				} else if err == nil {
					err = tx.Commit(t.Context())
				}
				if err != nil {
					t.Errorf("write: %v", err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		work.Wait()
		close(done)
	}()
	seen := map[int]int{}
	ended := false
	for {
		page, err := events.Read(t.Context(), p.store, at, "", 7)
		require.NoError(t, err)
		for _, n := range numbers(t, page) {
			seen[n]++
		}
		at = page.Next
		if ended && len(page.Events) == 0 && !page.More {
			break
		}
		select {
		case <-done:
			ended = true
		default:
		}
	}
	want := 0
	for n := range each {
		if n%7 != 3 {
			want++
		}
	}
	require.Len(t, seen, writers*want)
	for n, times := range seen {
		require.Equal(t, 1, times, "event %d", n)
	}
}

func TestFilterMovesTheCursor(t *testing.T) {
	p := newPlane(t)
	at, err := events.Head(t.Context(), p.store)
	require.NoError(t, err)
	p.write(runID(1), 1)
	p.write(runID(2), 2)
	p.write(runID(1), 3)
	p.reads(at, runID(1), 1, 3)
	page, err := events.Read(t.Context(), p.store, at, runID(3), 10)
	require.NoError(t, err)
	require.Empty(t, page.Events)
	page, err = events.Read(t.Context(), p.store, page.Next, "", 10)
	require.NoError(t, err)
	require.Empty(t, page.Events, "the cursor has moved past what the filter left out")
}

func TestGapIsSaid(t *testing.T) {
	p := newPlane(t)
	start, err := events.Head(t.Context(), p.store)
	require.NoError(t, err)
	p.write("", 1)
	p.write("", 2)
	seen := p.reads(start, "", 1, 2).Next
	p.prune()
	p.write("", 3)

	page, err := events.Read(t.Context(), p.store, start, "", 10)
	require.NoError(t, err)
	require.True(t, page.Gap, "what it had not read was cut")
	page = p.reads(seen, "", 3)
	require.False(t, page.Gap, "what was cut, this reader had read")
	seen.Timeline++
	page, err = events.Read(t.Context(), p.store, seen, "", 10)
	require.NoError(t, err)
	require.True(t, page.Gap, "a cursor of another history says nothing about this one")
}

// What retention takes between any two statements of a reading is read or said to be gone.
func TestPruneAmidAReading(t *testing.T) {
	p := newPlane(t)
	for at := range 3 {
		start, err := events.Head(t.Context(), p.store)
		require.NoError(t, err)
		p.write("", 1)
		statement := 0
		apart := database(func(ctx context.Context, fill func(*pgx.Batch)) error {
			var whole pgx.Batch
			fill(&whole)
			for _, q := range whole.QueuedQueries {
				if statement == at {
					p.prune()
				}
				statement++
				if err := p.store.Batch(ctx, func(b *pgx.Batch) { b.QueuedQueries = []*pgx.QueuedQuery{q} }); err != nil {
					return err
				}
			}
			return nil
		})
		page, err := events.Read(t.Context(), apart, start, "", 10)
		require.NoError(t, err)
		require.Equal(t, 3, statement)
		require.True(t, page.Gap, "cut before statement %d; it read %v", at, numbers(t, page))
	}
}

func TestCursorText(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := events.Cursor{
			System: rapid.Int64().Draw(r, "system"), Timeline: rapid.Int32().Draw(r, "timeline"),
			XID: uint64(rapid.Int64Min(0).Draw(r, "xid")), Seq: rapid.Int64Min(0).Draw(r, "seq"),
		}
		back, err := events.ParseCursor(c.String())
		require.NoError(r, err)
		require.Equal(r, c, back)
	})
}

func FuzzParseCursor(f *testing.F) {
	good := events.Cursor{System: 1, Timeline: 2, XID: 3, Seq: 4}.String()
	for name, s := range map[string]string{
		"cursor": good, "largest": events.Cursor{System: -1, Timeline: -1, XID: math.MaxInt64, Seq: math.MaxInt64}.String(), "nothing": "",
		"padded": "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "next version": "Ag" + good[2:], "cut": good[:len(good)-1], "a line's end": good[:len(good)-1] + "\n",
		"a negative place": events.Cursor{XID: 3, Seq: -4}.String(), "a transaction too large": events.Cursor{XID: math.MaxUint64}.String(), "last bits": good[:len(good)-1] + "F",
	} {
		corpus.Add(f, name, s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := events.ParseCursor(s)
		if err != nil {
			require.ErrorIs(t, err, events.ErrCursor)
			return
		}
		require.Equal(t, s, c.String(), "one text for one cursor")
	})
}

// A database that is away is an error, not an end of the outbox.
func TestReadFailure(t *testing.T) {
	p := newPlane(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := events.Read(ctx, p.store, events.Cursor{}, "", 1)
	require.Error(t, err)
	_, err = events.Head(ctx, p.store)
	require.Error(t, err)
}
