// Runs over HTTP: submitted, listed, shown and refused.

package runner_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/roles/runner"
)

type api struct {
	t   *testing.T
	mux *http.ServeMux
}

func (a api) call(method, path, body string, header ...string) (int, string) {
	a.t.Helper()
	r := httptest.NewRequestWithContext(a.t.Context(), method, path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	a.mux.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestRunRoutes(t *testing.T) {
	p := newPlane(t)
	woken := 0
	a := api{t: t, mux: http.NewServeMux()}
	for _, r := range runner.NewAPI(runner.APIConfig{Store: p.store, Notify: func(string) { woken++ }}).Routes() {
		require.True(t, r.Permission.Known(), r.Pattern)
		a.mux.Handle(r.Method+" "+r.Pattern, r.Handler)
	}
	const spec = `{"name":"build","jobs":[{"name":"vet","argv":["go","vet"],"env":{"A":"b"},"timeout":"90s","labels":["linux","arm"],"priority":3},{"name":"test","argv":["true"]}]}`
	decode := func(body string) (d runner.RunDocument) {
		require.NoError(t, json.Unmarshal([]byte(body), &d), body)
		return d
	}

	status, body := a.call("POST", "/v1/runs", spec, runner.IdempotencyHeader, "key-1")
	require.Equal(t, http.StatusCreated, status, body)
	first := decode(body)
	require.Equal(t, []string{"forgeyard.dev/v1", "Run", "build", "running"}, []string{first.APIVersion, first.Kind, first.Name, string(first.State)})
	require.Equal(t, runner.Counts{Queued: 2}, first.Counts)
	require.Equal(t, "vet", first.Jobs[0].Name)
	require.Equal(t, []string{"arm", "linux"}, first.Jobs[0].Labels)
	require.Equal(t, runner.DefaultAttemptLimit, first.Jobs[1].AttemptLimit)
	require.Equal(t, 1, woken)

	status, body = a.call("POST", "/v1/runs", spec, runner.IdempotencyHeader, "key-1")
	require.Equal(t, http.StatusOK, status, body)
	require.Equal(t, first.ID, decode(body).ID, "the same key and specification are the same run")
	status, body = a.call("POST", "/v1/runs", strings.Replace(spec, "build", "other", 1), runner.IdempotencyHeader, "key-1")
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, body, "FY-RUN-002")
	require.Equal(t, 1, woken)

	status, body = a.call("POST", "/v1/runs", spec)
	require.Equal(t, http.StatusCreated, status, body)
	second := decode(body)
	status, body = a.call("GET", "/v1/runs?limit=1", "")
	require.Equal(t, http.StatusOK, status)
	var list runner.RunListDocument
	require.NoError(t, json.Unmarshal([]byte(body), &list))
	require.Len(t, list.Runs, 1)
	require.Equal(t, second.ID, list.Runs[0].ID, "the newest first")
	require.Empty(t, list.Runs[0].Jobs)

	require.Equal(t, second.ID, list.Next)
	status, body = a.call("GET", "/v1/runs?limit=1&after="+list.Next, "")
	require.Equal(t, http.StatusOK, status)
	list = runner.RunListDocument{}
	require.NoError(t, json.Unmarshal([]byte(body), &list))
	require.Equal(t, []string{first.ID, ""}, []string{list.Runs[0].ID, list.Next}, "the last page has no next one")

	status, body = a.call("GET", "/v1/runs/"+first.ID, "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, first.Jobs, decode(body).Jobs)

	for path, want := range map[string]int{"/v1/runs/01ARZ3NDEKTSV4RRFFQ69G5FAV": 404, "/v1/runs/x": 404, "/v1/runs/%00": 404, "/v1/runs/%ff%fe": 404, "/v1/runs?limit=0": 400, "/v1/runs?limit=x": 400, "/v1/runs?limit=201": 400,
		"/v1/runs?after=x": 400, "/v1/runs?state=odd": 400, "/v1/runs?queue=a%20b": 400, "/v1/runs?state=failed": 200, "/v1/runs?queue=other": 200} {
		status, body = a.call("GET", path, "")
		require.Equal(t, want, status, path+body)
	}
}

// TestRefusedSpecifications names what is wrong, and stores nothing.
func TestRefusedSpecifications(t *testing.T) {
	p := newPlane(t)
	a := api{t: t, mux: http.NewServeMux()}
	for _, r := range runner.NewAPI(runner.APIConfig{Store: p.store}).Routes() {
		a.mux.Handle(r.Method+" "+r.Pattern, r.Handler)
	}
	job := func(fields string) string { return `{"name":"r","jobs":[{"name":"j","argv":["x"],` + fields + `}]}` }
	for body, want := range map[string]string{
		`{`:                                  "FY-API-001",
		`{"name":"r","job":[]}`:              "unknown field",
		`{"name":"r","jobs":[]}`:             "1 to 2000 jobs",
		`{"name":"","jobs":[{}]}`:            "name: 0 bytes",
		`{"name":"r","jobs":[{"name":"j"}]}`: "jobs[0].argv: the program to run is missing",
		`{"name":"r","jobs":[{"name":"j","argv":["x"]},{"name":"j","argv":["x"]}]}`: `jobs[1].name: \"j\" is already the name of jobs[0]`,
		`{"name":"a\u0000b","jobs":[{"name":"j","argv":["x"]}]}`:                    "control character",
		`{"name":"r","jobs":[{"name":"j","argv":["x","\u0000"]}]}`:                  "jobs[0].argv",
		job(`"env":{"A=B":"c"}`):  "is no variable name",
		job(`"labels":["a b"]`):   "jobs[0].labels",
		job(`"priority":101`):     "jobs[0].priority",
		job(`"timeout":"25h"`):    "jobs[0].timeout",
		job(`"timeout":"-1s"`):    "jobs[0].timeout",
		job(`"timeout":"soon"`):   "write a number and a unit",
		job(`"attempt_limit":11`): "jobs[0].attempt_limit",
		job(`"argv":["` + strings.Repeat("x", runner.MaxArgumentBytes+1) + `"]`): "bytes are more than",
	} {
		status, answer := a.call("POST", "/v1/runs", body)
		require.Contains(t, []int{400, 422}, status, "%.80s: %s", body, answer)
		require.Contains(t, answer, want, "%.80s", body)
	}
	status, _ := a.call("POST", "/v1/runs", `{"name":"`+strings.Repeat("x", access.MaxBody)+`"}`)
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	require.Zero(t, one[int](p, `SELECT count(*) FROM forge.runs`))
}
