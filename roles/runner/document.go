// What a client reads: runs, jobs and the leases of each attempt.

package runner

import (
	"time"

	"github.com/forgeyard/forgeyard/fsm"
)

// RunState sums up the jobs of a run.
type RunState string

// The states of a run. Failed means that every job is terminal and at least one did not succeed.
const (
	RunRunning   RunState = "running"
	RunSucceeded RunState = "succeeded"
	RunFailed    RunState = "failed"
)

// JobState is a job's place in its life: queued → leased → succeeded | failed |
// cancelled, and leased → queued when a lease expired and attempts are left.
type JobState string

// The states of a job.
const (
	JobQueued    JobState = "queued"
	JobLeased    JobState = "leased"
	JobSucceeded JobState = "succeeded"
	JobFailed    JobState = "failed"
	JobCancelled JobState = "cancelled"
)

// Counts says how many jobs of a run are in each state.
type Counts struct {
	Queued    int `json:"queued"`
	Leased    int `json:"leased"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Cancelled int `json:"cancelled"`
}

// State derives the run's state.
func (c Counts) State() RunState {
	switch {
	case c.Queued+c.Leased > 0:
		return RunRunning
	case c.Failed+c.Cancelled > 0:
		return RunFailed
	}
	return RunSucceeded
}

// Run is one submission.
type Run struct {
	ID          string    `json:"id"` // ULID
	Name        string    `json:"name"`
	State       RunState  `json:"state"`
	SubmittedAt time.Time `json:"submitted_at"` // database time
	Counts      Counts    `json:"counts"`
	Jobs        []Job     `json:"jobs,omitempty"` // in submission order; only GET /v1/runs/{id} fills it
}

// Job is one command of a run and how far it has come.
type Job struct {
	ID           string     `json:"id"` // ULID
	Name         string     `json:"name"`
	Steps        []Step     `json:"steps"`
	Labels       []string   `json:"labels,omitempty"`
	Priority     int        `json:"priority"`
	Timeout      Duration   `json:"timeout"`
	State        JobState   `json:"state"`
	Reason       string     `json:"reason,omitempty"` // why it did not succeed
	Attempt      int        `json:"attempt"`          // leases made so far
	AttemptLimit int        `json:"attempt_limit"`
	FinishedAt   *time.Time `json:"finished_at,omitempty"`
	Leases       []Lease    `json:"leases,omitempty"` // one per attempt, oldest first
}

// LeaseState says whether an attempt may still report.
type LeaseState string

// The states of a lease: active → done (its agent completed it) or expired
// (only the fenced expiry loop).
const (
	LeaseActive  LeaseState = "active"
	LeaseDone    LeaseState = "done"
	LeaseExpired LeaseState = "expired"
)

// Lease is the right of one agent to run one attempt of a job.
type Lease struct {
	ID         string         `json:"id"`
	Attempt    int            `json:"attempt"`
	Agent      string         `json:"agent"`
	Epoch      fsm.Epoch      `json:"epoch,string"` // of the scheduler that made it
	Generation fsm.Generation `json:"generation,string"`
	State      LeaseState     `json:"state"`
	LeasedAt   time.Time      `json:"leased_at"`
	AcceptedAt *time.Time     `json:"accepted_at,omitempty"`
	ExpiresAt  time.Time      `json:"expires_at"`
	EndedAt    *time.Time     `json:"ended_at,omitempty"`
	Outcome    Outcome        `json:"outcome,omitempty"`
	ExitCode   *int           `json:"exit_code,omitempty"` // absent when the program never ended by itself
	Duration   *Duration      `json:"duration,omitempty"`  // as the agent measured it
	Reason     string         `json:"reason,omitempty"`
	OutputTail string         `json:"output_tail,omitempty"` // the last bytes of stdout and stderr, bad UTF-8 replaced
}

// Outcome is how an attempt ended on its agent.
type Outcome string

// The outcomes of an attempt.
const (
	Succeeded Outcome = "succeeded"
	Failed    Outcome = "failed"    // ended by itself, not with status 0
	TimedOut  Outcome = "timeout"   // killed at its time limit
	Cancelled Outcome = "cancelled" // killed because a client asked for it
	Errored   Outcome = "error"     // could not be started
)

// JobState is the state that a completion with this outcome moves its job to.
func (o Outcome) JobState() JobState {
	switch o {
	case Succeeded:
		return JobSucceeded
	case Cancelled:
		return JobCancelled
	}
	return JobFailed
}

func (o Outcome) valid() bool {
	switch o {
	case Succeeded, Failed, TimedOut, Cancelled, Errored:
		return true
	}
	return false
}
