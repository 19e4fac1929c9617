// Garbage collection: what is named stays, what is not goes after its grace, and no race loses anything.

package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/exclusive"
)

// scope is a held operation that a test can take away.
type scope struct {
	mu        sync.Mutex
	steps     int // that may still be taken; below 0: any number
	completed int
}

func (s *scope) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.steps == 0 {
		return cluster.ErrFenced
	}
	s.steps--
	return nil
}

func (s *scope) Complete(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.completed++
	return ctx.Err()
}

func (p *plane) collector(s Store, held *scope) *Collector {
	p.Helper()
	c, err := NewCollector(CollectorConfig{
		Store: s, DB: p.db, Grace: MinGrace, Begin: func(context.Context) (Scope, error) { return held, nil },
	})
	require.NoError(p, err)
	return c
}

func unlimited() *scope { return &scope{steps: -1} }

func TestCollector(t *testing.T) {
	p := newPlane(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *plane)
	}{
		{"named stays and the rest goes", collectNamed},
		{"a lost scope stops it", collectUntilFenced},
		{"failures stop it", collectFailures},
		{"pages of references", collectPages},
		{"while blobs are stored again", collectRace},
		{"every digest of the schema is marked", collectSchema},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, p.in(t)) })
	}
}

func collectNamed(t *testing.T, p *plane) {
	eachStore(t, func(t *testing.T, r *rig) {
		p := p.in(t)
		source, output, garbage, young := []byte("source"+t.Name()), []byte("output"+t.Name()), []byte("garbage"), []byte("young")
		d := put(t, r, source)
		lease := p.run(&d)
		p.artifact(lease, "out", put(t, r, output))
		l := p.logs(r, p.db)
		_, err := l.Append(t.Context(), Place{lease, agent, 0}, []byte("log of "+t.Name()))
		require.NoError(t, err)
		put(t, r, garbage)
		c := p.collector(r, unlimited())
		before, err := c.Last(t.Context())
		require.NoError(t, err)
		report, err := c.Collect(t.Context(), false)
		require.NoError(t, err)
		require.EqualValues(t, 4, report.Blobs)
		require.Zero(t, report.Garbage, "the grace period has just begun")

		r.pass(MinGrace + time.Second)
		put(t, r, young)
		dry, err := c.Collect(t.Context(), true)
		require.NoError(t, err)
		require.EqualValues(t, 1, dry.Garbage)
		require.EqualValues(t, len(garbage), dry.Reclaimed)
		require.Zero(t, dry.Deleted)
		holds(t, r, garbage)

		report, err = c.Collect(t.Context(), false)
		require.NoError(t, err)
		require.EqualValues(t, 5, report.Blobs)
		require.EqualValues(t, 1, report.Deleted)
		require.EqualValues(t, len(garbage), report.Reclaimed)
		last, err := c.Last(t.Context())
		require.NoError(t, err)
		require.True(t, last.Finished.After(before.Finished), "a dry run is not written down")
		require.Equal(t, report.Deleted, last.Last.Deleted)
		require.Equal(t, report.At.UnixMicro(), last.Last.At.UnixMicro())
		_, err = r.Stat(t.Context(), DigestOf(garbage))
		require.ErrorIs(t, err, ErrMissing)
		holds(t, r, source)
		holds(t, r, output)
		holds(t, r, young)
		text, _ := p.read(l, lease, 0)
		require.Equal(t, "log of "+t.Name(), text)

		r.pass(MinGrace)
		p.fenced(`DELETE FROM forge.log_chunks WHERE lease_id = $1::text::uuid`, lease)
		p.fenced(`DELETE FROM forge.artifacts WHERE lease_id = $1::text::uuid`, lease)
		report, err = c.Collect(t.Context(), false)
		require.NoError(t, err)
		require.EqualValues(t, 3, report.Deleted)
		require.Len(t, all(t, r), 1, "the source is still named by its run")
	})
}

func collectUntilFenced(t *testing.T, p *plane) {
	r := newFileRig(t)
	for i := range 10 {
		put(t, r, fmt.Appendf(nil, "garbage %d", i))
	}
	r.pass(DefaultGrace)
	held := &scope{steps: len(markSQL) + 4}
	report, err := p.collector(r, held).Collect(t.Context(), false)
	require.ErrorIs(t, err, cluster.ErrFenced)
	require.EqualValues(t, 4, report.Deleted)
	require.Len(t, all(t, r), 6)
	require.Equal(t, 1, held.completed)
}

func collectFailures(t *testing.T, p *plane) {
	r := newFileRig(t)
	put(t, r, []byte("garbage"))
	r.pass(DefaultGrace)
	held := unlimited()
	_, err := p.collector(r, held).Collect(ctxDone(), false)
	require.Error(t, err)
	require.Equal(t, 1, held.completed, "the scope is freed also when the daemon stops")
	require.Len(t, all(t, r), 1)

	_, err = NewCollector(CollectorConfig{Store: r, Grace: MinGrace - 1})
	require.Error(t, err)
	elsewhere, err := NewCollector(CollectorConfig{
		Store: r, DB: p.db, Begin: func(context.Context) (Scope, error) { return nil, exclusive.ErrHeld }, Every: time.Millisecond,
	})
	require.NoError(t, err)
	_, err = elsewhere.Collect(t.Context(), false)
	require.ErrorIs(t, err, exclusive.ErrHeld)

	loops, err := NewCollector(CollectorConfig{
		Store: r, DB: p.db, Begin: func(context.Context) (Scope, error) { return held, nil }, Every: time.Millisecond,
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { loops.Loop(ctx) })
	wg.Go(func() { elsewhere.Loop(ctx) })
	require.Eventually(t, func() bool { return len(all(t, r)) == 0 }, time.Minute, time.Millisecond, "the loop collects")
	stop()
	wg.Wait()
}

// More references than a page of each kind, so that the cursors are used.
func collectPages(t *testing.T, p *plane) {
	r := newFileRig(t)
	lease := p.run(nil)
	name := func(kind string, i int) Digest { return DigestOf(fmt.Appendf(nil, "%s %d", kind, i)) }
	const n = markPage + 7
	p.exec(`INSERT INTO forge.log_chunks (lease_id, start, length, digest) SELECT $1::text::uuid, i, 1, sha256(convert_to('chunk ' || i, 'UTF8')) FROM generate_series(0, $2) i`, lease, n)
	p.exec(`INSERT INTO forge.artifacts (lease_id, name, run_id, job_id, path, digest, size)
		SELECT l.id, 'a' || i, j.run_id, j.id, 'out', sha256(convert_to('output ' || i, 'UTF8')), 1
		  FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id, generate_series(0, $2) i WHERE l.id = $1::text::uuid`, lease, n)
	p.exec(`INSERT INTO forge.runs (id, name, request_digest, source)
		SELECT 'S' || lpad(i::text, 25, '0'), 'run', sha256(''), sha256(convert_to('source ' || i, 'UTF8')) FROM generate_series(0, $1) i`, n)
	c := &collection{cfg: p.collector(r, unlimited()).cfg, scope: unlimited()}
	require.NoError(t, c.mark(t.Context()))
	for i := range n + 1 {
		for _, kind := range []string{"chunk", "output", "source"} {
			require.True(t, c.named.has(name(kind, i)), "%s %d", kind, i)
		}
	}
	require.False(t, c.named.has(name("chunk", n+1)))
	p.fenced(`DELETE FROM forge.runs WHERE id LIKE 'S%'`)
	p.fenced(`DELETE FROM forge.artifacts WHERE lease_id = $1::text::uuid`, lease)
	p.fenced(`DELETE FROM forge.log_chunks WHERE lease_id = $1::text::uuid`, lease)
}

// Old garbage is stored again and named while collections run without a pause:
// nothing that a row names may be missing, ever.
func collectRace(t *testing.T, p *plane) {
	eachStore(t, func(t *testing.T, r *rig) {
		p := p.in(t)
		lease := p.run(nil)
		const n = 40
		for i := range n {
			put(t, r, content(i, 500))
		}
		r.pass(MinGrace + time.Minute)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var deleted int64
		var failed error
		wg.Go(func() {
			c := p.collector(r, unlimited())
			for ctx.Err() == nil && failed == nil {
				report, err := c.Collect(context.WithoutCancel(ctx), false)
				deleted += report.Deleted
				failed = err
			}
		})
		for i := range n {
			d := put(t, r, content(i, 500))
			p.artifact(lease, fmt.Sprint(i), d)
			holds(t, r, content(i, 500))
		}
		stop()
		wg.Wait()
		require.NoError(t, failed)
		for i := range n {
			holds(t, r, content(i, 500))
		}
		require.Len(t, all(t, r), n)
		t.Logf("%d of %d were deleted before they were stored again", deleted, n)
	})
}

// A new column with a digest must be marked, or what it names is collected.
func collectSchema(t *testing.T, p *plane) {
	rows, err := p.super.Query(t.Context(), `SELECT table_name || '.' || column_name FROM information_schema.columns
		WHERE table_schema = 'forge' AND data_type = 'bytea' ORDER BY 1`)
	require.NoError(t, err)
	var columns []string
	for rows.Next() {
		var c string
		require.NoError(t, rows.Scan(&c))
		columns = append(columns, c)
	}
	require.NoError(t, rows.Err())
	noBlob := []string{"leases.output_tail", "runs.request_digest"}
	marked := []string{"artifacts.digest", "log_chunks.digest", "runs.source"}
	want := slices.Concat(noBlob, marked)
	slices.Sort(want)
	require.Equal(t, want, columns, "a new column: name it in markSQL and unreferencedSQL, or here as one without a blob")
	require.Len(t, markSQL, len(marked))
}

// The steps of a Put and of a collection in every order that a property test
// finds: what is named is there.
func TestStepsOfPutAndCollectionInAnyOrder(t *testing.T) {
	r := newFileRig(t)
	s := r.Store.(*fileStore)
	s.sync = func(*os.File) error { return nil } // nothing crashes here
	b := []byte("content")
	d := DigestOf(b)
	seen := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		named, paused, judged := false, false, time.Time{}
		for _, step := range rapid.SliceOfN(rapid.SampledFrom([]string{"put", "age", "judge", "discard", "forget", "tidy"}), 1, 12).Draw(rt, "steps") {
			seen[step]++
			switch step {
			case "put": // and named by a row right after
				_, err := s.Put(t.Context(), bytes.NewReader(b), Want{})
				require.NoError(rt, err)
				named = true
			case "age":
				r.pass(MinGrace + time.Second)
				judged = judged.Add(-MinGrace - time.Second)
			case "judge": // a collection reads the clock, finds no row, and is paused
				if !named {
					paused, judged = true, cutoff(t, s, MinGrace)
				}
			case "discard": // it goes on
				if paused {
					_, err := s.discard(d, judged)
					require.NoError(rt, err)
				}
			case "forget":
				named = false
			case "tidy":
				_, err := s.Tidy(t.Context(), cutoff(t, s, MinGrace))
				require.NoError(rt, err)
			}
			if named {
				_, err := ReadAll(t.Context(), s, d, int64(len(b)))
				if errors.Is(err, ErrMissing) {
					rt.Fatalf("a named blob is gone after %s", step)
				}
				require.NoError(rt, err)
			}
		}
		judged = cutoff(t, s, -time.Hour)
		_, err := s.Delete(t.Context(), d, judged)
		require.NoError(rt, err)
	})
	require.Len(t, seen, 6)
}
