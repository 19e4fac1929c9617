// The writability probe: since when, and one line of log for a lasting fault.

package store

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWritableSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing, hanging atomic.Bool
		resume := make(chan struct{})
		p := newProber(Config{ProbeInterval: time.Second, Logger: slog.New(slog.DiscardHandler), Now: time.Now}, func(ctx context.Context) error {
			if hanging.Load() {
				<-resume
			}
			if failing.Load() {
				return errors.New("down")
			}
			return nil
		})
		p.start()
		defer p.stop()
		at := func(after time.Duration, wantOK bool, wantSince time.Duration) {
			t.Helper()
			<-time.After(after)
			synctest.Wait()
			ok, since := p.state()
			require.Equal(t, wantOK, ok)
			require.Equal(t, wantSince, since)
		}
		at(0, true, 0)
		at(10*time.Second+time.Millisecond, true, 10*time.Second+time.Millisecond)
		failing.Store(true)
		at(time.Second, false, time.Millisecond)
		failing.Store(false)
		p.kick()
		at(100*time.Millisecond, true, time.Millisecond)

		// A probe that hangs, or a process that was paused: the old answer goes stale.
		hanging.Store(true)
		at(899*time.Millisecond, true, 900*time.Millisecond)
		at(3*time.Second, false, 900*time.Millisecond)
		hanging.Store(false)
		close(resume)
		at(time.Second, true, 4900*time.Millisecond)
	})
}

// However many find that the server is away, and whatever the probe itself finds,
// it dials ten times an interval at most; without anybody's hint, once.
func TestProbeRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probes atomic.Int32
		p := newProber(Config{ProbeInterval: time.Second, Logger: slog.New(slog.DiscardHandler), Now: time.Now}, func(context.Context) error {
			probes.Add(1)
			return ErrUnavailable
		})
		p.start()
		<-time.After(10*time.Second + time.Millisecond)
		require.EqualValues(t, 11, probes.Load())
		for range 10_000 {
			p.kick()
			<-time.After(time.Millisecond)
		}
		p.stop()
		require.InDelta(t, 11+100, probes.Load(), 2)
	})
}

// A probe that finds no server asks for no further one: it would be a loop without rest.
func TestProbeIsNoHint(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db, func(c *Config) { c.ProbeInterval = probeNever })
	require.Eventually(t, func() bool { ok, _ := s.Writable(); return ok }, waitBound, pollEvery)
	s.probe.stop()
	select {
	case <-s.probe.hint:
	default:
	}
	s.reserved.Close()
	require.ErrorIs(t, s.writeProbe(t.Context()), ErrUnavailable)
	require.Empty(t, s.probe.hint)
	require.Error(t, s.use(t.Context(), s.reserved, ping))
	require.Len(t, s.probe.hint, 1)
}

// A database that was never of use is reported, once for each reason.
func TestProbeSaysWhyOnce(t *testing.T) {
	var log bytes.Buffer
	var answer error
	p := newProber(Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Now: time.Now}, func(context.Context) error { return answer })
	for _, step := range []struct {
		answer error
		text   string
	}{
		{ErrNotMigrated.Wrap(errors.New("first"), ""), "FY-DB-002"},
		{ErrNotMigrated.Wrap(errors.New("second"), ""), ""},
		{ErrUnavailable, "FY-DB-001"},
		{nil, "PostgreSQL is writable"},
		{nil, ""},
		{errors.New("odd"), "odd"},
	} {
		log.Reset()
		answer = step.answer
		p.once(t.Context())
		require.Equal(t, step.text == "", log.Len() == 0, log.String())
		require.True(t, strings.Contains(log.String(), step.text), log.String())
	}
}
