// Bytes through a daemon with a real artifact store: who may move which, and what a client reads of them.

package runner_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// depot is a daemon with an artifact store that can go away.
type depot struct {
	*plane
	blobs  *outage
	logs   *artifact.Logs
	server *runner.Transfers
	http   *httptest.Server
	topics chan string
}

// outage is a store that answers ErrUnavailable while it is away, and to
// readers also while it is blind.
type outage struct {
	artifact.Store
	away, blind atomic.Bool
}

func (o *outage) Put(ctx context.Context, r io.Reader, want artifact.Want) (artifact.Blob, error) {
	if o.away.Load() {
		return artifact.Blob{}, artifact.ErrUnavailable
	}
	return o.Store.Put(ctx, r, want)
}

func (o *outage) Get(ctx context.Context, d artifact.Digest) (io.ReadCloser, int64, error) {
	if o.away.Load() || o.blind.Load() {
		return nil, 0, artifact.ErrUnavailable
	}
	return o.Store.Get(ctx, d)
}

func newDepot(t *testing.T) *depot {
	t.Helper()
	p := newPlane(t)
	s, err := artifact.Open(t.Context(), "file://"+t.TempDir(), cluster.NewClusterID(), artifact.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	d := &depot{plane: p, blobs: &outage{Store: s}, topics: make(chan string, 1000)}
	d.logs, err = artifact.NewLogs(d.blobs, p.store)
	require.NoError(t, err)
	t.Cleanup(d.logs.Close)
	var wake func()
	api := runner.NewAPI(runner.APIConfig{
		Store: p.store, Blobs: d.blobs, Sources: artifact.Sources{Store: d.blobs}, Logs: d.logs, Audit: p.store.Audit(),
		Notify: func(topic string) { d.topics <- topic }, Subscribe: func(_ string, f func()) { wake = f }, Limits: runner.QueueLimits{Queue: 5},
	})
	d.server = runner.NewTransfers(runner.TransfersConfig{Store: p.store, Blobs: d.blobs, Logs: d.logs, Logged: wake})
	sessions := runner.NewSessions(runner.SessionsConfig{Store: p.store, Node: "d1", Timing: quick, Transfers: d.server})
	p.net.Start("d1", sessions)
	mux := http.NewServeMux()
	for _, r := range api.Routes() {
		mux.Handle(r.Method+" "+r.Pattern, r.Handler)
	}
	d.http = httptest.NewServer(mux)
	t.Cleanup(d.http.Close)
	return d
}

// call makes a request and returns its status, headers and whole body.
func (d *depot) call(method, path string, body io.Reader, into any) (int, http.Header) {
	d.Helper()
	r, err := http.NewRequestWithContext(d.Context(), method, d.http.URL+path, body)
	require.NoError(d, err)
	answer, err := d.http.Client().Do(r)
	require.NoError(d, err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	require.NoError(d, err)
	switch v := into.(type) {
	case nil:
	case *string:
		*v = string(b)
	default:
		require.NoError(d, json.Unmarshal(b, into), "%s", b)
	}
	return answer.StatusCode, answer.Header
}

// open begins a transfer as an agent.
func (d *depot) open(agent string, what runner.Transfer) (runner.TransferStream, runner.Ready, error) {
	d.Helper()
	l, err := d.net.Dialer(agent).Dial(d.Context(), "d1")
	require.NoError(d, err)
	d.Cleanup(func() { _ = l.Close() })
	f, err := l.Open(d.Context())
	require.NoError(d, err)
	d.Cleanup(f.Close)
	return runner.OpenTransfer(d.Context(), f, what)
}

func (d *depot) refused(agent string, what runner.Transfer, code string, retry bool) {
	d.Helper()
	_, _, err := d.open(agent, what)
	var r *runner.Refused
	require.ErrorAs(d, err, &r)
	require.Equal(d, code, r.Code, r.Reason)
	require.Equal(d, retry, r.Retry)
}

func tree(t *testing.T, files map[string]string) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	var b bytes.Buffer
	_, err := artifact.PackZstd(t.Context(), dir, nil, artifact.Limits{}, &b)
	require.NoError(t, err)
	return b.Bytes()
}

// keep stores an output as an agent would.
func (d *depot) keep(agent, lease, name, path string, bytes []byte, digest string) error {
	d.Helper()
	s, _, err := d.open(agent, runner.Transfer{Store: &runner.Store{Lease: lease, Name: name, Path: path, Size: int64(len(bytes)), Digest: digest}})
	if err != nil {
		return err
	}
	_, err = s.SendAll(d.Context(), strings.NewReader(string(bytes)))
	require.NoError(d, err)
	require.NoError(d, s.Send(d.Context(), runner.Frame{End: &runner.End{Size: int64(len(bytes)), Digest: digest}}))
	f, err := s.Receive(d.Context())
	if err == nil {
		require.NotNil(d, f.Done)
	}
	return err
}

// fetch reads a blob as an agent would.
func (d *depot) fetch(agent, lease, digest string) []byte {
	d.Helper()
	s, ready, err := d.open(agent, runner.Transfer{Fetch: &runner.Fetch{Lease: lease, Digest: digest}})
	require.NoError(d, err)
	b, err := io.ReadAll(s.Reader(d.Context()))
	require.NoError(d, err)
	require.EqualValues(d, ready.Size, len(b))
	return b
}

func offerOf(m runner.Message) *runner.Offer { return m.Offer }

// TestSourceAndArtifacts follows a tree from its upload through two jobs to a client.
func TestSourceAndArtifacts(t *testing.T) {
	d := newDepot(t)
	source, output := tree(t, map[string]string{"main.go": "package main"}), tree(t, map[string]string{"prog": "binary"})
	var up runner.SourceDocument
	status, _ := d.call("POST", "/v1/sources", bytes.NewReader(source), &up)
	require.Equal(t, http.StatusCreated, status)
	require.Equal(t, []any{artifact.DigestOf(source).String(), int64(len(source)), 1}, []any{up.Digest, up.Size, up.Entries})
	var text string
	status, _ = d.call("POST", "/v1/sources", strings.NewReader("no archive"), &text)
	require.Equal(t, http.StatusUnprocessableEntity, status, text)

	spec := func(source string) io.Reader {
		return strings.NewReader(`{"name":"r","source":"` + source + `","jobs":[{"name":"build","argv":["x"],"outputs":[{"name":"bin","path":"out"}]},
 {"name":"test","needs":["build"],"steps":[{"name":"unit","argv":["y"]}]}]}`)
	}
	status, _ = d.call("POST", "/v1/runs", spec(artifact.DigestOf([]byte("?")).String()), &text)
	require.Equal(t, http.StatusUnprocessableEntity, status)
	require.Contains(t, text, "FY-RUN-004")
	var run runner.RunDocument
	status, _ = d.call("POST", "/v1/runs", spec(up.Digest), &run)
	require.Equal(t, http.StatusCreated, status)
	require.Equal(t, runner.Counts{Queued: 1, Blocked: 1}, run.Counts)

	a := d.speak("a", "d1")
	d.speak("b", "d1")
	build := d.leaseJob(run.ID, "build", "a")
	offer := await(a, offerOf)
	require.Equal(t, up.Digest, offer.Source)
	require.Equal(t, []runner.Output{{Name: "bin", Path: "out"}}, offer.Outputs)
	require.Empty(t, offer.Inputs)
	require.True(t, a.answer(build))
	require.Equal(t, source, d.fetch("a", build, up.Digest))
	digest := artifact.DigestOf(output).String()
	d.refused("b", runner.Transfer{Fetch: &runner.Fetch{Lease: build, Digest: up.Digest}}, "FY-RUN-005", false)
	d.refused("a", runner.Transfer{Fetch: &runner.Fetch{Lease: build, Digest: digest}}, "FY-RUN-005", false)
	d.refused("b", runner.Transfer{Store: &runner.Store{Lease: build, Name: "bin", Path: "out", Digest: digest}}, "FY-RUN-005", false)
	d.refused("a", runner.Transfer{Store: &runner.Store{Lease: build, Name: "bin", Path: "elsewhere", Digest: digest}}, "FY-RUN-005", false)
	d.refused("a", runner.Transfer{Store: &runner.Store{Lease: build, Name: "bin", Path: "out", Digest: digest, Size: runner.MaxStored + 1}}, "FY-CAS-008", false)

	d.blobs.away.Store(true)
	d.refused("a", runner.Transfer{Fetch: &runner.Fetch{Lease: build, Digest: up.Digest}}, "FY-CAS-001", true)
	require.Equal(t, []string{build}, a.beat(1, runner.Progress{Lease: build, Work: 1}).Alive, "links and leases go on without the store")
	d.blobs.away.Store(false)

	require.ErrorContains(t, d.keep("a", build, "bin", "out", []byte("damaged"), digest), "FY-CAS-009")
	require.NoError(t, d.keep("a", build, "bin", "out", output, digest))
	require.NoError(t, d.keep("a", build, "bin", "out", output, digest), "a repeat is answered like the first")
	require.ErrorContains(t, d.keep("a", build, "bin", "out", source, up.Digest), "FY-RUN-005", "another content is not")
	var list runner.ArtifactListDocument
	d.call("GET", "/v1/runs/"+run.ID+"/artifacts", nil, &list)
	require.Empty(t, list.Artifacts, "they count once the attempt has succeeded")
	require.Equal(t, 1, a.complete(map[string]runner.Outcome{build: runner.Succeeded}))
	d.call("GET", "/v1/runs/"+run.ID+"/artifacts", nil, &list)
	require.Len(t, list.Artifacts, 1)
	require.Equal(t, []any{"build", "bin", "out", digest, int64(len(output)), 1}, []any{list.Artifacts[0].Job, list.Artifacts[0].Name, list.Artifacts[0].Path,
		list.Artifacts[0].Digest, list.Artifacts[0].Size, list.Artifacts[0].Attempt})
	status, header := d.call("GET", "/v1/runs/"+run.ID+"/jobs/build/artifacts/bin", nil, &text)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, string(output), text)
	sum := artifact.DigestOf(output)
	require.Equal(t, "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":", header.Get("Content-Digest"))
	status, _ = d.call("GET", "/v1/runs/"+run.ID+"/jobs/test/artifacts/bin", nil, &text)
	require.Equal(t, http.StatusNotFound, status)

	d.refused("a", runner.Transfer{Fetch: &runner.Fetch{Lease: build, Digest: up.Digest}}, "FY-RUN-005", false)
	test := d.leaseJob(run.ID, "test", "a")
	offer = await(a, offerOf)
	require.Equal(t, []runner.Input{{Job: "build", Name: "bin", Path: "out", Digest: digest}}, offer.Inputs)
	require.Equal(t, "unit", offer.Steps[0].Name)
	require.Equal(t, output, d.fetch("a", test, digest))
	status, _ = d.call("GET", "/v1/runs/"+run.ID, nil, &run)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, digest, run.Jobs[0].Leases[0].Artifacts[0].Digest)
}

// logs is a log stream of an agent under the test's control.
type logs struct {
	*depot
	runner.TransferStream
}

func (d *depot) logStream(agent, lease string) (logs, int64) {
	d.Helper()
	s, ready, err := d.open(agent, runner.Transfer{Log: &runner.Log{Lease: lease}})
	require.NoError(d, err)
	return logs{d, s}, ready.Offset
}

func (l logs) write(at int64, text string) int64 {
	l.Helper()
	require.NoError(l, l.Send(l.Context(), runner.Frame{Chunk: &runner.Chunk{Offset: at, Data: []byte(text)}}))
	f, err := l.Receive(l.Context())
	require.NoError(l, err)
	return f.Ack.Offset
}

// TestLogsAreFollowed from their first byte to their last one, whichever stream
// brought them; bytes come once, and an answer that cannot go on breaks off.
func TestLogsAreFollowed(t *testing.T) {
	d := newDepot(t)
	a := d.speak("a", "d1")
	lease := d.lease("a", nil)
	run := one[string](d.plane, `SELECT j.run_id FROM forge.jobs j JOIN forge.leases l ON l.job_id = j.id WHERE l.id = $1::text::uuid`, lease)
	path := "/v1/runs/" + run + "/jobs/job/logs"
	follow := func(query string) (next func(string), rest func() (string, error), header http.Header) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", d.http.URL+path+query, nil)
		require.NoError(t, err)
		answer, err := d.http.Client().Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { answer.Body.Close() })
		require.Equal(t, http.StatusOK, answer.StatusCode)
		next = func(want string) {
			t.Helper()
			b := make([]byte, len(want))
			_, err := io.ReadFull(answer.Body, b)
			require.NoError(t, err)
			require.Equal(t, want, string(b))
		}
		rest = func() (string, error) { b, err := io.ReadAll(answer.Body); return string(b), err }
		return next, rest, answer.Header
	}
	first, at := d.logStream("a", lease)
	require.Zero(t, at)
	require.EqualValues(t, 5, first.write(0, "hello"))
	next, rest, header := follow("?follow=true")
	require.Equal(t, []string{"0", "1"}, []string{header.Get(runner.LogOffsetHeader), header.Get(runner.LogAttemptHeader)})
	next("hello")
	require.EqualValues(t, 7, first.write(3, "lo, "), "what is stored already is acknowledged and not stored again")
	next(", ")
	second, at := d.logStream("a", lease) // as on another daemon
	require.EqualValues(t, 7, at)
	require.NoError(t, second.Send(t.Context(), runner.Frame{Chunk: &runner.Chunk{Offset: 9, Data: []byte("x")}}))
	_, err := second.Receive(t.Context())
	var gap *runner.Refused
	require.ErrorAs(t, err, &gap)
	require.Equal(t, []any{"FY-LOG-001", true}, []any{gap.Code, gap.Retry})
	a.logBytes = 12
	require.Equal(t, 1, a.complete(map[string]runner.Outcome{lease: runner.Succeeded}))
	require.EqualValues(t, 12, first.write(7, "world"), "the rest of a log follows its completion")
	require.NoError(t, first.Send(t.Context(), runner.Frame{End: &runner.End{Size: 12}}))
	f, err := first.Receive(t.Context())
	require.NoError(t, err)
	require.NotNil(t, f.Done)
	text, err := rest()
	require.NoError(t, err, "the answer ends with the log")
	require.Equal(t, "world", text)

	var whole string
	status, _ := d.call("GET", path+"?attempt=1&offset=7", nil, &whole)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "world", whole)
	for query, want := range map[string]int{"?attempt=2": 404, "?offset=-1": 400, "?attempt=x": 400} {
		status, _ := d.call("GET", path+query, nil, nil)
		require.Equal(t, want, status, query)
	}
	d.refused("b", runner.Transfer{Log: &runner.Log{Lease: lease}}, "FY-RUN-005", false)
	d.blobs.away.Store(true)
	status, _ = d.call("GET", path, nil, &whole)
	require.Equal(t, http.StatusServiceUnavailable, status, whole)
	d.blobs.away.Store(false)

	// A log that stays unfinished is waited for, but not for ever; a store that goes away breaks the answer.
	lost := d.lease("a", nil)
	path = "/v1/runs/" + one[string](d.plane, `SELECT j.run_id FROM forge.jobs j JOIN forge.leases l ON l.job_id = j.id WHERE l.id = $1::text::uuid`, lost) + "/jobs/job/logs"
	third, _ := d.logStream("a", lost)
	third.write(0, "lost")
	next, rest, _ = follow("?follow=true")
	broken, brokenRest, _ := follow("?follow=true")
	next("lost")
	broken("lost")
	require.Equal(t, 1, a.complete(map[string]runner.Outcome{lost: runner.Failed}))
	d.exec(`UPDATE forge.leases SET ended_at = ended_at - interval '31 s' WHERE id = $1::text::uuid`, lost)
	text, err = rest()
	require.NoError(t, err)
	require.Empty(t, text)
	_, err = brokenRest()
	require.NoError(t, err)
	d.exec(`UPDATE forge.leases SET ended_at = ended_at - interval '1 h' WHERE id = $1::text::uuid`, lost)
	d.refused("a", runner.Transfer{Log: &runner.Log{Lease: lost}}, "FY-RUN-005", false)
}

// TestFollowBreaksWithTheStore: a client must not take what it has for the whole.
func TestFollowBreaksWithTheStore(t *testing.T) {
	d := newDepot(t)
	d.speak("a", "d1")
	lease := d.lease("a", nil)
	run := one[string](d.plane, `SELECT run_id FROM forge.jobs`)
	s, _ := d.logStream("a", lease)
	s.write(0, "some")
	r, err := http.NewRequestWithContext(t.Context(), "GET", d.http.URL+"/v1/runs/"+run+"/jobs/job/logs?follow=true", nil)
	require.NoError(t, err)
	answer, err := d.http.Client().Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	_, err = io.ReadFull(answer.Body, make([]byte, 4))
	require.NoError(t, err)
	d.blobs.blind.Store(true)
	s.write(4, "more")
	_, err = io.ReadAll(answer.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}
