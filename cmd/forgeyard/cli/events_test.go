// Events: as lines and as documents, of daemons that are lost again and again, until a run ends.

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

func TestEventsOfARun(t *testing.T) {
	t.Parallel()
	endpoint := plane().serve(t)
	read := func(t *testing.T, args ...string) *bytes.Buffer {
		t.Parallel()
		s := invoke(t, []string{endpoint}, nil, append([]string{"events", "--run", "release", "--timeout", "5s"}, args...)...)
		require.Zero(t, s.code, s.err.String())
		return &s.out
	}
	t.Run("lines", func(t *testing.T) {
		require.Equal(t, "2026-11-29T10:02:11Z  job.succeeded         "+waitingRun+"  build  attempt=1\n"+
			"2026-11-29T10:02:12Z  job.queued            "+waitingRun+"  test  attempt=2\n", read(t).String())
	})
	t.Run("documents", func(t *testing.T) {
		var e Event
		require.NoError(t, json.Unmarshal(read(t, "--after", "c1", "-o", "json").Bytes(), &e), "one event is left")
		require.Equal(t, "c2 job.queued j2", e.ID+" "+e.Event+" "+e.Job)
	})
	t.Run("names", func(t *testing.T) {
		require.Equal(t, "event/c1\nevent/c2\n", read(t, "-o", "name").String())
	})
	s := invoke(t, []string{endpoint}, nil, "events")
	require.Equal(t, ExitUsage, s.code)
}

func TestEventsGoOnAfterCuts(t *testing.T) {
	t.Parallel()
	const events, cuts = 400, 100
	rng, left := rand.New(rand.NewPCG(7, 7)), cuts
	var mu sync.Mutex
	f := plane()
	done := waiting()
	done.State = runner.RunSucceeded
	f["GET /v1/runs/"+waitingRun] = done
	f["GET /v1/runs/"+waitingRun+"/events"] = func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		cut := 1 << 20
		if left > 0 {
			left--
			cut = rng.IntN(1200) // in the middle of an id, of data, of what is between
		}
		mu.Unlock()
		serveEvents(w, r, events, cut)
		if cut < 1<<20 {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
	}
	s := invoke(t, []string{f.serve(t), f.serve(t)}, nil, "events", "--run", waitingRun, "-f", "-o", "json")
	require.Zero(t, s.code, s.err.String())
	require.Zero(t, left)
	n := 0
	for line := range strings.Lines(s.out.String()) {
		var e Event
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		n++
		require.Equal(t, "c"+strconv.Itoa(n), e.ID, "none is missing and none comes twice")
		require.Equal(t, "j"+strconv.Itoa(n), e.Job)
	}
	require.Equal(t, events-1, n)
}

func TestCtrlCEndsEventsWell(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	f := fleet{"GET /v1/events": func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		cancel()
		<-r.Context().Done()
	}}
	var out, errs bytes.Buffer
	code := Run(ctx, IO{In: strings.NewReader(""), Out: &out, Err: &errs}, Deps{}, []string{"events", "-f", "--endpoint", f.serve(t)})
	require.Equal(t, ExitInterrupted, code)
	require.Empty(t, errs.String())
}
