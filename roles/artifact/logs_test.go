// Logs: no byte lost, none twice, from any daemon.

package artifact

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLogs runs on one database; each case has leases and a store of its own. The last one closes it.
func TestLogs(t *testing.T) {
	p := newPlane(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *plane)
	}{
		{"LogIsReadAsItWasWritten", logLogIsReadAsItWasWritten},
		{"AppendRepeatsAndOverlaps", logAppendRepeatsAndOverlaps},
		{"DaemonsAppendTheSameLogAtOnce", logDaemonsAppendTheSameLogAtOnce},
		{"StoreDownKeepsTheAgentWaiting", logStoreDownKeepsTheAgentWaiting},
		{"DamagedChunkEndsTheRead", logDamagedChunkEndsTheRead},
		{"ChunkThatUnpacksTooFar", logChunkThatUnpacksTooFar},
		{"ExpiredLeaseIsTold", logExpiredLeaseIsTold},
		{"DatabaseDownIsRetryable", logDatabaseDownIsRetryable},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, p.in(t)) })
	}
}

func (p *plane) read(l *Logs, lease string, from int64) (string, Tail) {
	p.Helper()
	var got bytes.Buffer
	at := from
	tail, err := l.Read(p.Context(), lease, from, func(start int64, raw []byte) error {
		require.Equal(p, at, start, "pieces follow each other")
		require.LessOrEqual(p, len(raw), MaxChunk)
		at += int64(len(raw))
		got.Write(raw)
		return nil
	})
	require.NoError(p, err)
	require.Equal(p, at, tail.End)
	return got.String(), tail
}

func logLogIsReadAsItWasWritten(t *testing.T, p *plane) {
	eachStore(t, func(t *testing.T, r *rig) {
		p := p.in(t)
		lease := p.run(nil)
		writer, reader := p.logs(r, p.db), p.logs(r, p.db)
		text, tail := p.read(reader, lease, 0)
		require.Empty(t, text)
		require.Equal(t, Tail{}, tail)

		var want bytes.Buffer
		add := func(start int64, b []byte) int64 {
			end, err := writer.Append(t.Context(), Place{lease, agent, start}, b)
			require.NoError(t, err)
			return end
		}
		for i, b := range [][]byte{[]byte("first line\n"), content(1, MaxChunk), []byte{0, 0xff, '\n'}} {
			require.EqualValues(t, want.Len()+len(b), add(int64(want.Len()), b), "chunk %d", i)
			want.Write(b)
		}
		for range readPage + 3 {
			add(int64(want.Len()), []byte("line\n"))
			want.WriteString("line\n")
		}
		text, tail = p.read(reader, lease, 0)
		require.Equal(t, want.String(), text)
		require.False(t, tail.Complete)
		for _, from := range []int64{1, 11, 12, MaxChunk, MaxChunk + 11, int64(want.Len()) - 7, int64(want.Len()), int64(want.Len()) + 100} {
			text, _ = p.read(reader, lease, from)
			require.Equal(t, want.String()[min(from, int64(want.Len())):], text, "from %d", from)
		}

		gap := new(GapError)
		require.ErrorAs(t, writer.Finish(t.Context(), Place{lease, agent, int64(want.Len()) + 1}), &gap)
		require.EqualValues(t, want.Len(), gap.End)
		require.NoError(t, writer.Finish(t.Context(), Place{lease, agent, int64(want.Len())}))
		require.NoError(t, writer.Finish(t.Context(), Place{lease, agent, int64(want.Len())}), "finishing twice is harmless")
		_, tail = p.read(reader, lease, 0)
		require.True(t, tail.Complete)
		require.EqualValues(t, want.Len(), add(int64(want.Len()), []byte("too late")), "a final log keeps its end")
		text, _ = p.read(reader, lease, 0)
		require.Equal(t, want.Len(), len(text))
	})
}

func logAppendRepeatsAndOverlaps(t *testing.T, p *plane) {
	r := newFileRig(t)
	lease := p.run(nil)
	l := p.logs(r, p.db)
	add := func(start int64, s string) (int64, error) {
		return l.Append(t.Context(), Place{lease, agent, start}, []byte(s))
	}
	for range 3 {
		end, err := add(0, "abcdef")
		require.NoError(t, err)
		require.EqualValues(t, 6, end)
	}
	end, err := add(2, "cd")
	require.NoError(t, err)
	require.EqualValues(t, 6, end, "what is stored is a success")
	end, err = add(4, "efgh")
	require.NoError(t, err)
	require.EqualValues(t, 8, end, "only the new part is stored")
	end, err = add(9, "j")
	require.ErrorIs(t, err, ErrGap)
	gap := new(GapError)
	require.ErrorAs(t, err, &gap)
	require.EqualValues(t, 8, gap.End)
	require.EqualValues(t, 8, end)
	require.False(t, Retryable(err))
	text, _ := p.read(l, lease, 0)
	require.Equal(t, "abcdefgh", text)

	for name, c := range map[string]struct {
		at  Place
		raw []byte
		err error
	}{
		"nothing":       {Place{lease, agent, 8}, nil, ErrChunk},
		"too much":      {Place{lease, agent, 8}, make([]byte, MaxChunk+1), ErrChunk},
		"negative":      {Place{lease, agent, -1}, []byte("x"), ErrChunk},
		"far away":      {Place{lease, agent, 1<<63 - 1}, []byte("x"), ErrChunk},
		"another agent": {Place{lease, "agent-2", 8}, []byte("x"), ErrNoLease},
		"no lease":      {Place{"00000000-0000-0000-0000-000000000000", agent, 0}, []byte("x"), ErrNoLease},
		"no lease id":   {Place{"x'; --", agent, 0}, []byte("x"), ErrNoLease},
	} {
		_, err := l.Append(t.Context(), c.at, c.raw)
		require.ErrorIs(t, err, c.err, name)
	}
	require.ErrorIs(t, l.Finish(t.Context(), Place{lease, "agent-2", 8}), ErrNoLease)
	_, err = l.Read(t.Context(), "nothing", 0, func(int64, []byte) error { return nil })
	require.ErrorIs(t, err, ErrNoLease)
	failure := errors.New("the client went away")
	_, err = l.Read(t.Context(), lease, 0, func(int64, []byte) error { return failure })
	require.ErrorIs(t, err, failure)
}

// An agent whose link moved sends the same log over two daemons at once, cut differently.
func logDaemonsAppendTheSameLogAtOnce(t *testing.T, p *plane) {
	r := newFileRig(t)
	lease := p.run(nil)
	whole := content(5, 60_000)
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		l := p.logs(r, p.db)
		wg.Go(func() {
			step := []int{700, 1100, 4096}[i]
			for at := 0; at < len(whole) && errs[i] == nil; {
				var end int64
				end, errs[i] = l.Append(t.Context(), Place{lease, agent, int64(at)}, whole[at:min(at+step, len(whole))])
				if Retryable(errs[i]) {
					errs[i] = nil // the others were faster three times: again
					continue
				}
				at = int(end)
			}
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	text, _ := p.read(p.logs(r, p.db), lease, 0)
	require.True(t, string(whole) == text, "%d bytes of %d", len(text), len(whole))
}

func logStoreDownKeepsTheAgentWaiting(t *testing.T, p *plane) {
	r := newFileRig(t)
	lease := p.run(nil)
	cut := &flaky{Store: r}
	db := &losing{Database: p.db}
	l := p.logs(cut, db)
	at := Place{lease, agent, 0}
	cut.down.Store(true)
	_, err := l.Append(t.Context(), at, []byte("line 1\n"))
	require.ErrorIs(t, err, ErrUnavailable)
	require.True(t, Retryable(err))
	var rows int
	require.NoError(t, p.super.QueryRow(t.Context(), `SELECT count(*) FROM forge.log_chunks WHERE lease_id = $1::text::uuid`, lease).Scan(&rows))
	require.Zero(t, rows, "no row names a chunk that is not stored")
	cut.down.Store(false)
	_, err = l.Append(t.Context(), at, []byte("line 1\n"))
	require.NoError(t, err)

	db.lose.Store(true) // the answer to what was committed
	_, err = l.Append(t.Context(), Place{lease, agent, 7}, []byte("line 2\n"))
	require.True(t, Retryable(err), "%v", err)
	end, err := l.Append(t.Context(), Place{lease, agent, 7}, []byte("line 2\n"))
	require.NoError(t, err)
	require.EqualValues(t, 14, end)
	cut.down.Store(true)
	_, err = l.Read(t.Context(), lease, 0, func(int64, []byte) error { return nil })
	require.ErrorIs(t, err, ErrUnavailable)
	cut.down.Store(false)
	text, _ := p.read(l, lease, 0)
	require.Equal(t, "line 1\nline 2\n", text)
}

func logDamagedChunkEndsTheRead(t *testing.T, p *plane) {
	r := newFileRig(t)
	lease := p.run(nil)
	l := p.logs(r, p.db)
	_, err := l.Append(t.Context(), Place{lease, agent, 0}, []byte("good\n"))
	require.NoError(t, err)
	_, err = l.Append(t.Context(), Place{lease, agent, 5}, []byte("lost\n"))
	require.NoError(t, err)
	var digest []byte
	require.NoError(t, p.super.QueryRow(t.Context(), `SELECT digest FROM forge.log_chunks WHERE start = 5 AND lease_id = $1::text::uuid`, lease).Scan(&digest))
	r.rot(Digest(digest))
	var got []byte
	tail, err := l.Read(t.Context(), lease, 0, func(_ int64, raw []byte) error {
		got = append(got, raw...)
		return nil
	})
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, "at 5")
	require.Equal(t, "good\n", string(got))
	require.EqualValues(t, 5, tail.End)
}

// A frame may not make a reader allocate more than a chunk.
func logChunkThatUnpacksTooFar(t *testing.T, p *plane) {
	r := newFileRig(t)
	lease := p.run(nil)
	l := p.logs(r, p.db)
	_, err := l.Append(t.Context(), Place{lease, agent, 0}, []byte("x"))
	require.NoError(t, err)
	d := put(t, r, compressed(t, make([]byte, 4*MaxChunk)))
	p.exec(`UPDATE forge.log_chunks SET digest = $1 WHERE lease_id = $2::text::uuid`, d.Bytes(), lease)
	_, err = l.Read(t.Context(), lease, 0, func(int64, []byte) error { return nil })
	require.ErrorIs(t, err, ErrCorrupt)
}

func logExpiredLeaseIsTold(t *testing.T, p *plane) {
	r := newFileRig(t)
	lease := p.run(nil)
	l := p.logs(r, p.db)
	p.fenced(`UPDATE forge.leases SET state = 'expired', ended_at = coordination.clock() WHERE id = $1::text::uuid`, lease)
	_, err := l.Append(t.Context(), Place{lease, agent, 0}, []byte("late\n"))
	require.NoError(t, err, "what a returning agent still has is kept")
	text, tail := p.read(l, lease, 0)
	require.Equal(t, "late\n", text)
	require.Equal(t, Tail{End: 5, Expired: true}, tail)
}

func logDatabaseDownIsRetryable(t *testing.T, p *plane) {
	r := newFileRig(t)
	lease := p.run(nil)
	l := p.logs(r, p.db)
	p.db.Close()
	began := time.Now()
	_, err := l.Append(t.Context(), Place{lease, agent, 0}, []byte("x"))
	require.Error(t, err)
	require.True(t, Retryable(err), "%v", err)
	require.Less(t, time.Since(began), soon)
}
