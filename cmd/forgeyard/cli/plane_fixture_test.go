// Documents of the job plane, as a daemon answers them.

package cli

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/scheduler"
)

const (
	failedRun  = "01JDVW0000000000000000RUN1"
	waitingRun = "01JDVW0000000000000000RUN2"
)

func later(d time.Duration) *time.Time { t := when().Add(d); return &t }

// waiting is a run of which one job is done and two wait.
func waiting() runner.RunDocument {
	took := runner.Duration(61 * time.Second)
	return runner.RunDocument{APIVersion: apiVersion, Kind: "Run", Run: runner.Run{
		ID: waitingRun, Name: "release", Queue: "nightly", Source: artifact.DigestOf(nil).String(), State: runner.RunRunning, SubmittedBy: "token:ci",
		SubmittedAt: when(), Counts: runner.Counts{Blocked: 1, Queued: 1, Succeeded: 1},
		Jobs: []runner.Job{
			{ID: "01JDVW0000000000000000JOB3", Name: "build", Steps: []runner.Step{{Name: "make", Argv: []string{"make", "all"}}, {Argv: []string{"ls"}}},
				State: runner.JobSucceeded, Attempt: 1, AttemptLimit: 3, Timeout: runner.Duration(time.Hour), Outputs: []runner.Output{{Name: "binary", Path: "bin/app"}},
				Leases: []runner.Lease{{ID: "l1", Attempt: 1, Agent: "agent-1", Epoch: 41, State: runner.LeaseDone, Outcome: runner.Succeeded, ExitCode: new(int), Duration: &took,
					LeasedAt: when(), EndedAt: later(time.Minute), LogBytes: 2048, LogFinal: true, Artifacts: artifacts()}}},
			{ID: "01JDVW0000000000000000JOB4", Name: "test", Steps: []runner.Step{{Argv: []string{"make", "test"}}}, Labels: []string{"gpu", "linux"},
				Needs: []string{"build"}, State: runner.JobQueued, AttemptLimit: 3, Timeout: runner.Duration(time.Hour)},
			{ID: "01JDVW0000000000000000JOB5", Name: "deploy", Steps: []runner.Step{{Argv: []string{"make", "deploy"}}}, Needs: []string{"build", "test"},
				State: runner.JobBlocked, AttemptLimit: 3, Timeout: runner.Duration(time.Hour)},
		},
	}}
}

func artifacts() []runner.Artifact {
	return []runner.Artifact{{Job: "build", Name: "binary", Path: "bin/app", Digest: artifact.DigestOf(nil).String(), Size: 12_700_000, Attempt: 1, At: when()}}
}

func why() scheduler.WhyDocument {
	return scheduler.WhyDocument{APIVersion: apiVersion, Kind: "RunWhy", Run: waitingRun, At: when(), Scheduler: scheduler.RoleState{Active: true, Owner: "node-a"}, Jobs: []scheduler.JobWhy{
		{Job: "test", State: "queued", Labels: []string{"gpu", "linux"}, Reasons: []scheduler.Reason{{Code: scheduler.WaitsForLabels,
			Message: "no agent carries gpu, linux; the closest, agent-1, lacks gpu",
			Agents:  []scheduler.AgentFit{{Agent: "agent-1", State: "free", Missing: []string{"gpu"}, Slots: 2}}}}},
		{Job: "deploy", State: "blocked", Reasons: []scheduler.Reason{
			{Code: scheduler.WaitsForNeeds, Message: "it needs test (queued)", Needs: []scheduler.NeedState{{Job: "test", State: "queued"}}}}},
	}}
}

func agents() []runner.AgentInfo {
	return []runner.AgentInfo{
		{ID: "agent-1", State: runner.AgentReady, Node: id(1).String(), Slots: 2, Held: 1, Labels: []string{"linux"}, Build: "0.3.1", Session: "01JDVW0000000000000000SES1", FirstSeen: when(), LastSeen: when(),
			Leases: []runner.AgentLease{{ID: "l2", Run: failedRun, Job: "test", Attempt: 2, LeasedAt: when(), AcceptedAt: later(0), ExpiresAt: *later(time.Minute)}}},
		{ID: "agent-2", State: runner.AgentQuarantined, Slots: 2, Labels: []string{"gpu", "linux"}, Build: "0.3.1", Session: "01JDVW0000000000000000SES2", Unaccepted: 3,
			FirstSeen: when(), LastSeen: when(), QuarantinedAt: later(0), QuarantineReason: "3 leases in a row were not accepted"},
	}
}

func queues() scheduler.QueuesDocument {
	return scheduler.QueuesDocument{APIVersion: apiVersion, Kind: "QueueList", Survey: scheduler.Survey{
		Depth: 51, OldestWait: runner.Duration(250 * time.Second), Active: 3,
		Queues:     []scheduler.QueueDepth{{Queue: "nightly", Depth: 40, OldestWait: runner.Duration(250 * time.Second)}, {Queue: "default", Depth: 11, OldestWait: runner.Duration(3 * time.Second)}},
		Labels:     []scheduler.LabelDepth{{Labels: []string{}, Depth: 41, OldestWait: runner.Duration(250 * time.Second), Agents: 2, Free: 1}, {Labels: []string{"gpu"}, Depth: 1, OldestWait: runner.Duration(3 * time.Second)}},
		MoreLabels: &scheduler.Rest{Count: 7, Depth: 9, OldestWait: runner.Duration(2 * time.Second)},
	}}
}

// plane are the answers of the job plane.
func plane() fleet {
	return fleet{
		"GET /v1/runs": runner.RunListDocument{APIVersion: apiVersion, Kind: "RunList", Next: failedRun,
			Runs: []runner.Run{waiting().Run, run(runner.RunFailed).Run}},
		"GET /v1/runs/" + failedRun:                 run(runner.RunFailed),
		"GET /v1/runs/" + waitingRun:                waiting(),
		"GET /v1/runs/" + waitingRun + "/why":       why(),
		"GET /v1/runs/" + waitingRun + "/artifacts": runner.ArtifactListDocument{APIVersion: apiVersion, Kind: "ArtifactList", Artifacts: artifacts()},
		"GET /v1/agents":                            runner.AgentListDocument{APIVersion: apiVersion, Kind: "AgentList", Agents: agents()},
		"GET /v1/agents/agent-1":                    runner.AgentDocument{APIVersion: apiVersion, Kind: "Agent", AgentInfo: agents()[0]},
		"GET /v1/queues":                            queues(),
		"GET /v1/gc": artifact.Collection{APIVersion: apiVersion, Kind: "Collection", Node: id(1).String(), Finished: *later(time.Second), Last: &artifact.Report{At: when(), Blobs: 900, Bytes: 5 << 30, Garbage: 12,
			Deleted: 12, Reclaimed: 77 << 20, Leftovers: 1},
			Retention: &artifact.Retention{Removed: map[string]int64{"runs": 40, "jobs": 123, "outbox": 9000, "collections": 0}, Passed: later(time.Minute)}},
		"GET /v1/runs/" + failedRun + "/jobs/vet/logs":  log("vet: ok\n"),
		"GET /v1/runs/" + failedRun + "/jobs/test/logs": log("\x1b[31mFAIL\x1b[0m TestX\x1b]0;evil\a\npanic: late\rend"),
		"GET /v1/runs/" + waitingRun + "/events": func(w http.ResponseWriter, r *http.Request) {
			serveEvents(w, r, 3, 1<<20)
			<-r.Context().Done()
		},
	}
}

// log serves a log that does not grow.
func log(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) { serveLog(w, r, text, len(text)) }
}

// serveLog serves a log from the offset that is asked for up to a byte.
func serveLog(w http.ResponseWriter, r *http.Request, text string, end int) {
	offset, err := strconv.Atoi(r.URL.Query().Get("offset"))
	if err != nil || offset > len(text) {
		http.Error(w, "offset", http.StatusBadRequest)
		return
	}
	w.Header().Set(runner.LogOffsetHeader, r.URL.Query().Get("offset"))
	w.Header().Set(runner.LogAttemptHeader, "1")
	_, _ = strings.NewReader(text[offset:max(offset, end)]).WriteTo(w)
}

// serveEvents serves the events of a run after the cursor that is asked for, in
// which the cursor cN stands behind the Nth event, and cuts after so many bytes.
func serveEvents(w http.ResponseWriter, r *http.Request, events, cut int) {
	after, _ := strconv.Atoi(strings.TrimPrefix(r.Header.Get("Last-Event-ID"), "c"))
	var b strings.Builder
	fmt.Fprintf(&b, "retry: 1000\nid: c%d\n\n", after)
	for n := after + 1; n < events; n++ {
		state, name := "succeeded", "build"
		if n%2 == 0 {
			state, name = "queued", "test"
		}
		fmt.Fprintf(&b, "id: c%d\nevent: job.%s\ndata: {\"at\":\"2026-11-29T10:02:1%dZ\",\"kind\":\"job.%s\",\"run\":%q,\ndata: \"job\":\"j%d\",\"data\":{\"name\":%q,\"attempt\":%d}}\n\n",
			n, state, n%10, state, waitingRun, n, name, n)
		if n%7 == 0 {
			fmt.Fprintf(&b, ": a comment\nretry: 1000\nid: c%d\n\n", n)
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = w.Write([]byte(b.String()[:min(cut, b.Len())]))
	_ = http.NewResponseController(w).Flush()
}
