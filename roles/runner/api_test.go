// Agents, cancellation and the queue limit over HTTP.

package runner_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// TestAgentsOverHTTP: what an operator does shows, is recorded, and may be repeated.
func TestAgentsOverHTTP(t *testing.T) {
	d := newDepot(t)
	a := d.speak("a", "d1")
	lease := d.lease("a", nil)
	require.True(t, a.accept(lease))
	var doc runner.AgentDocument
	status, _ := d.call("GET", "/v1/agents/a", nil, &doc)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, []any{runner.AgentReady, "d1", 100, 1, lease}, []any{doc.State, doc.Node, doc.Slots, doc.Held, doc.Leases[0].ID})
	for _, c := range []struct {
		act   string
		state runner.AgentState
	}{
		{"drain", runner.AgentDraining}, {"drain", runner.AgentDraining}, {"quarantine", runner.AgentQuarantined},
		{"release", runner.AgentDraining}, {"undrain", runner.AgentReady}, {"release", runner.AgentReady},
	} {
		doc = runner.AgentDocument{}
		status, _ := d.call("POST", "/v1/agents/a/"+c.act, strings.NewReader(`{"reason":"disk smells"}`), &doc)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, c.state, doc.State, c.act)
		if c.act == "quarantine" {
			require.Equal(t, "disk smells", doc.QuarantineReason)
		}
	}
	status, _ = d.call("POST", "/v1/agents/nobody/drain", nil, nil)
	require.Equal(t, http.StatusNotFound, status)
	status, _ = d.call("GET", "/v1/agents/%20", nil, nil)
	require.Equal(t, http.StatusNotFound, status)
	require.Equal(t, 6, one[int](d.plane, `SELECT count(*) FROM coordination.audit WHERE actor = 'anonymous' AND target = 'a' AND outcome = 'accepted' AND detail = 'disk smells'`))
	require.Equal(t, 1, one[int](d.plane, `SELECT count(*) FROM coordination.audit WHERE action = 'agent.drain' AND target = 'nobody' AND outcome = 'refused'`))

	require.NoError(t, a.Close())
	require.Eventually(t, func() bool {
		var list runner.AgentListDocument
		d.call("GET", "/v1/agents", nil, &list)
		return len(list.Agents) == 1 && list.Agents[0].State == runner.AgentAway
	}, soon, 5*time.Millisecond)
}

// TestQueueLimit refuses what would wait beyond it, says when to come back, and stores nothing of it.
func TestQueueLimit(t *testing.T) {
	d := newDepot(t)
	spec := func(queue string, n int) *strings.Reader {
		jobs := make([]string, n)
		for i := range jobs {
			jobs[i] = `{"name":"` + string(rune('a'+i)) + `","argv":["x"]}`
		}
		return strings.NewReader(`{"name":"r","queue":"` + queue + `","jobs":[` + strings.Join(jobs, ",") + `]}`)
	}
	var text string
	status, _ := d.call("POST", "/v1/runs", spec("q", 3), nil)
	require.Equal(t, http.StatusCreated, status)
	status, header := d.call("POST", "/v1/runs", spec("q", 3), &text)
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Contains(t, text, "FY-RUN-007")
	require.NotEmpty(t, header.Get("Retry-After"))
	status, _ = d.call("POST", "/v1/runs", spec("other", 5), nil)
	require.Equal(t, http.StatusCreated, status, "another queue has its own")
	status, _ = d.call("POST", "/v1/runs", spec("q", 2), nil)
	require.Equal(t, http.StatusCreated, status)
	require.Equal(t, 10, one[int](d.plane, `SELECT count(*) FROM forge.jobs`))
}

// TestCancelOverHTTP, of a job and then of its run.
func TestCancelOverHTTP(t *testing.T) {
	d := newDepot(t)
	run := d.submit(runner.JobSpec{Name: "a"}, runner.JobSpec{Name: "b"})
	var doc runner.RunDocument
	status, _ := d.call("POST", "/v1/runs/"+run+"/cancel", strings.NewReader(`{"job":"a","reason":"typo"}`), &doc)
	require.Equal(t, http.StatusOK, status)
	require.NotNil(t, doc.Jobs[0].CancelledAt)
	require.Contains(t, doc.Jobs[0].Reason, "typo")
	require.Nil(t, doc.Jobs[1].CancelledAt)
	require.Equal(t, "cancels", <-d.topics)
	for range 2 {
		status, _ = d.call("POST", "/v1/runs/"+run+"/cancel", nil, &doc)
		require.Equal(t, http.StatusOK, status)
		require.NotNil(t, doc.Jobs[1].CancelledAt)
	}
	status, _ = d.call("POST", "/v1/runs/"+run+"/cancel", strings.NewReader(`{"job":"c"}`), nil)
	require.Equal(t, http.StatusNotFound, status)
	status, _ = d.call("POST", "/v1/runs/01ARZ3NDEKTSV4RRFFQ69G5FAV/cancel", nil, nil)
	require.Equal(t, http.StatusNotFound, status)
}

// What does not exist is answered with the command that lists what does.
func TestNotFoundNamesTheList(t *testing.T) {
	d := newDepot(t)
	run := d.submit(runner.JobSpec{Name: "a"})
	const none = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	for request, want := range map[string]string{
		"GET /v1/runs/" + none:                           "forgeyard run list",
		"GET /v1/runs/x":                                 "forgeyard run list",
		"POST /v1/runs/" + none + "/cancel":              "forgeyard run list",
		"GET /v1/runs/" + none + "/artifacts":            "forgeyard run list",
		"GET /v1/runs/" + run + "/jobs/b/logs":           "forgeyard run show " + run,
		"GET /v1/runs/" + run + "/jobs/%20/logs":         "forgeyard run show " + run,
		"GET /v1/runs/x/jobs/a/logs":                     "forgeyard run list",
		"GET /v1/runs/" + run + "/jobs/a/artifacts/of":   "forgeyard run artifacts " + run,
		"GET /v1/runs/" + run + "/jobs/a/artifacts/%20":  "forgeyard run artifacts " + run,
		"GET /v1/runs/" + run + "/jobs/%20/artifacts/of": "forgeyard run artifacts " + run,
		"GET /v1/runs/x/jobs/a/artifacts/of":             "forgeyard run list",
		"GET /v1/agents/nobody":                          "forgeyard agents list",
		"POST /v1/agents/nobody/drain":                   "forgeyard agents list",
	} {
		method, path, _ := strings.Cut(request, " ")
		var doc access.Document
		status, _ := d.call(method, path, nil, &doc)
		require.Equal(t, http.StatusNotFound, status, request)
		require.Contains(t, doc.Error.Hint, want, request)
	}
}
