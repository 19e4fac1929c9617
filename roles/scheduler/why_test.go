// Why jobs wait: each reason from a made-up situation, and all of it from a real queue.

package scheduler

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWhy names each reason once, and what a person would ask next.
func TestWhy(t *testing.T) {
	later := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	active := RoleState{Active: true, Owner: "node-a"}
	free := host{id: "free", labels: []string{"linux"}, slots: 2, held: 1}
	full := host{id: "full", labels: []string{"linux"}, slots: 2, held: 2}
	for name, c := range map[string]struct {
		job    waiting
		hosts  []host
		states map[string]string
		queues int
		role   RoleState
		want   []ReasonCode
		says   string // in the first message
	}{
		"its turn":     {job: waiting{state: "queued", ahead: 3}, hosts: []host{full, free}, queues: 2, role: active, want: []ReasonCode{WaitsForTurn}, says: "come first: 3; other queues that take turns with it: 2"},
		"a long queue": {job: waiting{state: "queued", ahead: AheadShown, more: true}, hosts: []host{free}, role: active, want: []ReasonCode{WaitsForTurn}, says: "come first: 1000 or more;"},
		"no label": {
			job: waiting{state: "queued", labels: []string{"gpu", "linux"}}, hosts: []host{{id: "bare", slots: 1}, free}, role: active,
			want: []ReasonCode{WaitsForLabels}, says: "no agent carries gpu, linux; the closest, free, lacks gpu",
		},
		"no capacity": {
			job: waiting{state: "queued", labels: []string{"linux"}}, role: active,
			hosts: []host{
				{id: "away", labels: []string{"linux"}, slots: 1, away: true}, {id: "q", labels: []string{"linux"}, slots: 1, quarantined: true, reason: "broken disk"},
				{id: "d", labels: []string{"linux"}, slots: 1, draining: true}, {id: "probation", labels: []string{"linux"}, slots: 9, held: 1, doubted: true}, full, {id: "other", slots: 9},
			},
			want: []ReasonCode{WaitsForCapacity}, says: "2 busy, 1 draining, 1 quarantined, 1 away",
		},
		"no agents":      {job: waiting{state: "queued"}, role: active, want: []ReasonCode{WaitsForCapacity}, says: "the fleet has no agents"},
		"no scheduler":   {job: waiting{state: "queued"}, hosts: []host{free}, role: RoleState{Reason: "no quorum: 1 of 3 voters answer"}, want: []ReasonCode{WaitsForScheduler}, says: "nobody schedules: no quorum"},
		"no idea":        {job: waiting{state: "queued"}, hosts: []host{free}, want: []ReasonCode{WaitsForScheduler}, says: "the reason is not known"},
		"needs":          {job: waiting{state: "blocked", needs: []string{"a", "b", "c"}, unmet: 2}, states: map[string]string{"a": "succeeded", "b": "leased", "c": "blocked"}, hosts: []host{free}, role: active, want: []ReasonCode{WaitsForNeeds}, says: "it needs b (leased), c (blocked)"},
		"needs met":      {job: waiting{state: "blocked", needs: []string{"a"}}, states: map[string]string{"a": "succeeded"}, hosts: []host{free}, role: active, want: []ReasonCode{WaitsForNeeds}, says: "about to queue it"},
		"hopeless":       {job: waiting{state: "blocked", needs: []string{"a"}, unmet: -1}, states: map[string]string{"a": "failed"}, hosts: []host{free}, role: active, want: []ReasonCode{WaitsForNeeds}, says: "it will be skipped, for it needs a (failed)"},
		"backoff":        {job: waiting{state: "backoff", notBefore: &later}, hosts: []host{free}, role: active, want: []ReasonCode{WaitsForBackoff}, says: "repeated later"},
		"cancel":         {job: waiting{state: "queued", cancel: true}, hosts: []host{free}, role: active, want: []ReasonCode{WaitsForCancel}, says: "its end was asked for"},
		"not accepted":   {job: waiting{state: "leased", leasedTo: "free"}, hosts: []host{free}, role: active, want: []ReasonCode{WaitsForAgent}, says: "agent free has not accepted it yet"},
		"runs":           {job: waiting{state: "leased", leasedTo: "free", accepted: true}, hosts: []host{free}, want: []ReasonCode{}},
		"several causes": {job: waiting{state: "blocked", needs: []string{"a"}, unmet: 1, cancel: true, labels: []string{"gpu"}}, states: map[string]string{"a": "queued"}, hosts: []host{free}, want: []ReasonCode{WaitsForCancel, WaitsForNeeds, WaitsForScheduler, WaitsForLabels}, says: "asked for"},
	} {
		t.Run(name, func(t *testing.T) {
			got := explain(situation{jobs: []waiting{c.job}, states: c.states, hosts: c.hosts, queues: c.queues, role: c.role})
			codes := []ReasonCode{}
			for _, r := range got[0].Reasons {
				codes = append(codes, r.Code)
				require.NotEmpty(t, r.Message)
			}
			require.Equal(t, c.want, codes)
			if c.says != "" {
				require.Contains(t, got[0].Reasons[0].Message, c.says)
			}
			switch c.want = append(c.want, ""); c.want[0] {
			case WaitsForBackoff:
				require.Equal(t, &later, got[0].Reasons[0].Until)
			case WaitsForLabels:
				require.Equal(t, AgentFit{Agent: "free", State: "free", Missing: []string{"gpu"}, Slots: 2, Held: 1}, got[0].Reasons[0].Agents[0])
			}
			if name == "no capacity" {
				fits := got[0].Reasons[0].Agents
				require.Len(t, fits, 5)
				require.Equal(t, AgentFit{Agent: "q", State: "quarantined", Detail: "broken disk", Slots: 1}, fits[3])
				require.Equal(t, "2 of 2 slots in use", fits[1].Detail)
			}
		})
	}
}

type authority RoleState

func (a authority) Scheduler() RoleState { return RoleState(a) }

// TestWhyAndQueuesOverHTTP reads both documents from a real queue.
func TestWhyAndQueuesOverHTTP(t *testing.T) {
	p := newPlane(t, Config{})
	g := p.lead()
	p.agent("a", 1)
	p.job(run(1), "1", "red")
	require.Equal(t, 1, p.batch(g))
	p.job(run(1), "2", "red", "1")
	p.job(run(1), "3", "red")
	p.job(run(1), "4", "red")
	p.job(run(2), "5", "blue")
	p.exec(`UPDATE forge.jobs SET labels = '{gpu}' WHERE name = '5'`)
	p.exec(`UPDATE forge.jobs SET queued_at = coordination.clock() - interval '1 h' WHERE name = '4'`)

	mux := http.NewServeMux()
	for _, r := range Routes(p.store, authority{Active: true, Owner: "n"}) {
		mux.Handle(r.Method+" "+r.Pattern, r.Handler)
	}
	get := func(path string, status int, doc any) {
		t.Helper()
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		require.Equal(t, status, w.Code, w.Body.String())
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), doc))
	}
	var why WhyDocument
	get("/v1/runs/"+run(1)+"/why", http.StatusOK, &why)
	require.Equal(t, "Why", why.Kind)
	require.Equal(t, RoleState{Active: true, Owner: "n"}, why.Scheduler)
	var codes []string
	for _, j := range why.Jobs {
		for _, r := range j.Reasons {
			codes = append(codes, j.Job+" "+string(r.Code))
		}
	}
	require.Equal(t, []string{"1 agent", "2 needs", "2 capacity", "3 capacity", "4 capacity"}, codes)
	p.exec(`UPDATE forge.agents SET slots = 2`)
	why = WhyDocument{}
	get("/v1/runs/"+run(1)+"/why", http.StatusOK, &why)
	require.Equal(t, Reason{Code: WaitsForTurn, Message: "an agent is free; jobs of its queue that come first: 1; other queues that take turns with it: 1", Ahead: 1, Queues: 1}, why.Jobs[3].Reasons[0])
	get("/v1/runs/"+run(2)+"/why", http.StatusOK, &why)
	require.Equal(t, WaitsForLabels, why.Jobs[0].Reasons[0].Code)

	p.complete(p.leaseOf("1"))
	p.exec(`SET session_replication_role = replica`)
	p.exec(`UPDATE forge.jobs SET state = 'cancelled', finished_at = now() WHERE name = '5'`)
	get("/v1/runs/"+run(2)+"/why", http.StatusOK, &why)
	require.Empty(t, why.Jobs)
	var problem map[string]any
	get("/v1/runs/"+run(9)+"/why", http.StatusNotFound, &problem)
	get("/v1/runs/x/why", http.StatusNotFound, &problem)

	p.exec(`UPDATE forge.jobs SET state = 'queued', finished_at = NULL WHERE name = '5'`)
	var queues QueuesDocument
	get("/v1/queues", http.StatusOK, &queues)
	require.Equal(t, 3, queues.Depth)
	require.GreaterOrEqual(t, time.Duration(queues.OldestWait), time.Hour)
	require.Equal(t, []string{"red", "blue"}, []string{queues.Queues[0].Queue, queues.Queues[1].Queue})
	require.Equal(t, []int{2, 1}, []int{queues.Queues[0].Depth, queues.Queues[1].Depth})
	require.Less(t, time.Duration(queues.Queues[1].OldestWait), time.Hour)
	require.Equal(t, []string{"gpu"}, queues.Labels[1].Labels)
	require.Equal(t, []int{0, 0}, []int{queues.Labels[1].Agents, queues.Labels[1].Free})
	require.Equal(t, []int{1, 2}, []int{queues.Labels[0].Agents, queues.Labels[0].Free})
	p.exec(`DELETE FROM forge.jobs WHERE name = '5'`)
	get("/v1/queues", http.StatusOK, &queues)
	require.Equal(t, 3, queues.Depth, "many pollers cost what one costs")
}
