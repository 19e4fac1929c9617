// Why a job waits: a pure function over what was read of it, its needs, the agents and the queue.

package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// RoleState is whether somebody schedules now, as the daemon that is asked knows it.
type RoleState struct {
	Active bool   `json:"active"`
	Owner  string `json:"owner,omitempty"`  // node name or id; "" when nobody is assigned
	Reason string `json:"reason,omitempty"` // why it is not active: no quorum, no PostgreSQL, maintenance, given up
}

// Authority tells whether SchedulerLeader is at work, and if not, why.
type Authority interface {
	Scheduler() RoleState
}

// ReasonCode names a reason to wait. The set is closed.
type ReasonCode string

// The reasons.
const (
	WaitsForScheduler ReasonCode = "scheduler" // nobody leases; Scheduler of the answer tells why
	WaitsForCancel    ReasonCode = "cancel"    // its end was asked for and is not complete
	WaitsForNeeds     ReasonCode = "needs"     // jobs that it needs have not succeeded: Needs
	WaitsForBackoff   ReasonCode = "backoff"   // its last attempt failed; it is repeated at Until
	WaitsForLabels    ReasonCode = "labels"    // no agent carries its labels: Agents are the closest, with what each lacks
	WaitsForCapacity  ReasonCode = "capacity"  // the agents that carry its labels take nothing now: Agents, with why
	WaitsForTurn      ReasonCode = "turn"      // an agent is free; Ahead jobs of its queue come first, Queues others take turns
	WaitsForAgent     ReasonCode = "agent"     // leased to Agents[0], which has not accepted it yet
)

// Reason is one cause of waiting, with what a person would ask next.
type Reason struct {
	Code    ReasonCode  `json:"code"`
	Message string      `json:"message"`
	Needs   []NeedState `json:"needs,omitempty"`
	Agents  []AgentFit  `json:"agents,omitempty"`
	Until   *time.Time  `json:"until,omitempty"`  // database time
	Ahead   int         `json:"ahead,omitempty"`  // jobs of the same queue that come first, at most AheadShown
	More    bool        `json:"more,omitempty"`   // there may be more than Ahead
	Queues  int         `json:"queues,omitempty"` // other queues with waiting jobs
}

// NeedState is a needed job that has not succeeded.
type NeedState struct {
	Job   string `json:"job"`
	State string `json:"state"`
}

// AgentFit says how far an agent is from taking a job.
type AgentFit struct {
	Agent   string   `json:"agent"`
	State   string   `json:"state"`             // free, busy, draining, quarantined, away
	Detail  string   `json:"detail,omitempty"`  // e.g. the reason of the quarantine
	Missing []string `json:"missing,omitempty"` // labels that it does not carry
	Slots   int      `json:"slots"`
	Held    int      `json:"held"` // active leases
}

// JobWhy is one job of a run that has not ended, and why it does not run.
type JobWhy struct {
	Job     string   `json:"job"`
	State   string   `json:"state"`
	Labels  []string `json:"labels,omitempty"`
	Reasons []Reason `json:"reasons"` // the first is what to look at first; none: it runs
}

// Bounds of an answer.
const (
	AheadShown  = 1000 // jobs ahead are counted up to here
	kindsAhead  = 64   // kinds of other jobs among which they are counted
	agentsShown = 5    // agents named in a reason
	jobsShown   = 200  // jobs explained; the rest wait for the same or for these
)

// waiting is a job that has not ended, as read.
type waiting struct {
	name, state string
	labels      []string
	needs       []string
	unmet       int
	notBefore   *time.Time
	cancel      bool
	ahead       int
	more        bool   // there may be more ahead
	leasedTo    string // the agent of its active lease
	accepted    bool
}

// host is an agent, as read.
type host struct {
	id          string
	labels      []string
	slots, held int
	away        bool // no link, or not heard of for too long
	draining    bool
	quarantined bool
	reason      string // of the quarantine
	doubted     bool
}

// situation is everything an explanation is made from.
type situation struct {
	jobs   []waiting         // that have not ended, in the order of the run
	states map[string]string // of every job of the run, by name
	hosts  []host
	queues int // other queues with waiting jobs
	role   RoleState
}

// explain says for each job of the run that has not ended why it does not run.
func explain(s situation) []JobWhy {
	out := make([]JobWhy, 0, len(s.jobs))
	for _, j := range s.jobs {
		out = append(out, JobWhy{Job: j.name, State: j.state, Labels: j.labels, Reasons: s.reasons(j)})
	}
	return out
}

func (s situation) reasons(j waiting) []Reason {
	reasons := []Reason{}
	add := func(r Reason, format string, args ...any) {
		r.Message = fmt.Sprintf(format, args...)
		reasons = append(reasons, r)
	}
	if j.cancel {
		add(Reason{Code: WaitsForCancel}, "its end was asked for")
	}
	switch j.state {
	case "leased":
		if !j.accepted {
			add(Reason{Code: WaitsForAgent, Agents: []AgentFit{{Agent: j.leasedTo, State: "offered"}}}, "agent %s has not accepted it yet", j.leasedTo)
		}
		return reasons
	case "blocked":
		add(Reason{Code: WaitsForNeeds, Needs: s.unfinished(j)}, "%s", s.needsMessage(j))
	case "backoff":
		add(Reason{Code: WaitsForBackoff, Until: j.notBefore}, "its last attempt failed, and is repeated later")
	}
	// What follows also holds up jobs that wait for something else first, but says nothing that helps until then.
	if !s.role.Active {
		add(Reason{Code: WaitsForScheduler}, "nobody schedules: %s", cmp.Or(s.role.Reason, "the reason is not known to this daemon"))
	}
	if r, ok := s.placement(j); ok {
		reasons = append(reasons, r)
	}
	if j.state == "queued" && len(reasons) == 0 {
		add(Reason{Code: WaitsForTurn, Ahead: j.ahead, More: j.more, Queues: s.queues}, "an agent is free; %s", turnMessage(j, s.queues))
	}
	return reasons
}

func turnMessage(j waiting, queues int) string {
	n := fmt.Sprint(j.ahead)
	if j.more {
		n += " or more"
	}
	return fmt.Sprintf("jobs of its queue that come first: %s; other queues that take turns with it: %d", n, queues)
}

func (s situation) unfinished(j waiting) []NeedState {
	var out []NeedState
	for _, n := range j.needs {
		if state := s.states[n]; state != "succeeded" {
			out = append(out, NeedState{Job: n, State: state})
		}
	}
	return out
}

func (s situation) needsMessage(j waiting) string {
	var names []string
	for _, n := range s.unfinished(j) {
		names = append(names, n.Job+" ("+n.State+")")
	}
	switch {
	case j.unmet < 0:
		return "it will be skipped, for it needs " + strings.Join(names, ", ")
	case len(names) == 0:
		return "its needs have succeeded, and the scheduler is about to queue it"
	}
	return "it needs " + strings.Join(names, ", ")
}

// placement looks for an agent: none carries the labels, or none of those has room.
func (s situation) placement(j waiting) (Reason, bool) {
	var fitting, others []AgentFit
	for _, h := range s.hosts {
		f := h.fit(j.labels)
		switch {
		case len(f.Missing) > 0:
			others = append(others, f)
		case f.State == hostFree:
			return Reason{}, false
		default:
			fitting = append(fitting, f)
		}
	}
	if len(fitting) > 0 {
		slices.SortStableFunc(fitting, func(a, b AgentFit) int { return cmp.Compare(hostRank(a.State), hostRank(b.State)) })
		counts := map[string]int{}
		for _, f := range fitting {
			counts[f.State]++
		}
		var parts []string
		for _, state := range hostStates() {
			if n := counts[state]; n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, state))
			}
		}
		return Reason{
			Code: WaitsForCapacity, Agents: fitting[:min(len(fitting), agentsShown)],
			Message: "no agent that carries its labels can take it now: " + strings.Join(parts, ", "),
		}, true
	}
	r := Reason{Code: WaitsForLabels}
	if len(s.hosts) == 0 {
		r.Code, r.Message = WaitsForCapacity, "the fleet has no agents"
		return r, true
	}
	slices.SortStableFunc(others, func(a, b AgentFit) int {
		return cmp.Or(cmp.Compare(len(a.Missing), len(b.Missing)), cmp.Compare(hostRank(a.State), hostRank(b.State)))
	})
	r.Agents = others[:min(len(others), agentsShown)]
	r.Message = fmt.Sprintf("no agent carries %s; the closest, %s, lacks %s",
		strings.Join(j.labels, ", "), others[0].Agent, strings.Join(others[0].Missing, ", "))
	return r, true
}

// The states of an agent, the most hopeful first.
const (
	hostFree        = "free"
	hostBusy        = "busy"
	hostDraining    = "draining"
	hostQuarantined = "quarantined"
	hostAway        = "away"
)

func hostStates() []string {
	return []string{hostFree, hostBusy, hostDraining, hostQuarantined, hostAway}
}

func hostRank(state string) int { return slices.Index(hostStates(), state) }

func (h host) fit(labels []string) AgentFit {
	f := AgentFit{Agent: h.id, State: hostFree, Slots: h.slots, Held: h.held}
	for _, l := range labels {
		if !slices.Contains(h.labels, l) {
			f.Missing = append(f.Missing, l)
		}
	}
	switch {
	case h.quarantined:
		f.State, f.Detail = hostQuarantined, h.reason
	case h.away:
		f.State, f.Detail = hostAway, "no daemon has heard of it lately"
	case h.draining:
		f.State, f.Detail = hostDraining, "it takes nothing new"
	case h.doubted && h.held > 0:
		f.State, f.Detail = hostBusy, "it let its last lease expire unaccepted, and gets one at a time"
	case h.held >= h.slots:
		f.State, f.Detail = hostBusy, fmt.Sprintf("%d of %d slots in use", h.held, h.slots)
	}
	return f
}
