// What a client reads: runs, jobs and the leases of each attempt.

package runner

import (
	"time"

	"github.com/forgeyard/forgeyard/fsm"
)

// RunState sums up the jobs of a run.
type RunState string

// The states of a run. All but running mean that every job has ended: failed,
// that at least one failed; cancelled, that none did and not all succeeded.
const (
	RunRunning   RunState = "running"
	RunSucceeded RunState = "succeeded"
	RunFailed    RunState = "failed"
	RunCancelled RunState = "cancelled"
)

// JobState is a job's place in its life:
//
//	blocked → queued → leased → succeeded | failed | cancelled
//	blocked → skipped                     a job that it needs did not succeed
//	leased → backoff → queued             a failed attempt is repeated
//	leased → queued                       the lease expired and attempts are left
//	blocked | queued | backoff → cancelled
type JobState string

// The states of a job.
const (
	JobBlocked   JobState = "blocked" // waits for jobs that it needs
	JobQueued    JobState = "queued"
	JobLeased    JobState = "leased"
	JobBackoff   JobState = "backoff" // waits for its next attempt
	JobSucceeded JobState = "succeeded"
	JobFailed    JobState = "failed"
	JobCancelled JobState = "cancelled"
	JobSkipped   JobState = "skipped"
)

// Counts says how many jobs of a run are in each state.
type Counts struct {
	Blocked   int `json:"blocked"`
	Queued    int `json:"queued"`
	Leased    int `json:"leased"`
	Backoff   int `json:"backoff"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Cancelled int `json:"cancelled"`
	Skipped   int `json:"skipped"`
}

// Open is how many jobs have not ended.
func (c Counts) Open() int { return c.Blocked + c.Queued + c.Leased + c.Backoff }

// Total is how many jobs there are.
func (c Counts) Total() int { return c.Open() + c.Succeeded + c.Failed + c.Cancelled + c.Skipped }

// State derives the run's state.
func (c Counts) State() RunState {
	switch {
	case c.Open() > 0:
		return RunRunning
	case c.Failed > 0:
		return RunFailed
	case c.Cancelled+c.Skipped > 0:
		return RunCancelled
	}
	return RunSucceeded
}

// Run is one submission.
type Run struct {
	ID          string    `json:"id"` // ULID
	Name        string    `json:"name"`
	Queue       string    `json:"queue"`
	Source      string    `json:"source,omitempty"` // digest
	State       RunState  `json:"state"`
	SubmittedBy string    `json:"submitted_by,omitempty"`
	SubmittedAt time.Time `json:"submitted_at"` // database time
	Counts      Counts    `json:"counts"`
	Jobs        []Job     `json:"jobs,omitempty"` // in submission order; only GET /v1/runs/{id} fills it
}

// Job is one job of a run and how far it has come.
type Job struct {
	ID           string     `json:"id"` // ULID
	Name         string     `json:"name"`
	Steps        []Step     `json:"steps"`
	Labels       []string   `json:"labels,omitempty"`
	Needs        []string   `json:"needs,omitempty"`
	Outputs      []Output   `json:"outputs,omitempty"`
	Priority     int        `json:"priority"`
	Timeout      Duration   `json:"timeout"`
	State        JobState   `json:"state"`
	Reason       string     `json:"reason,omitempty"` // why it did not succeed
	Attempt      int        `json:"attempt"`          // leases made so far
	AttemptLimit int        `json:"attempt_limit"`
	Retries      int        `json:"retries,omitempty"`
	Failures     int        `json:"failures,omitempty"`            // attempts that failed so far
	NotBefore    *time.Time `json:"not_before,omitempty"`          // in backoff: when it is queued again
	CancelledAt  *time.Time `json:"cancel_requested_at,omitempty"` // when its end was asked for
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
	Heartbeat  *time.Time     `json:"heartbeat_at,omitempty"`
	ExpiresAt  time.Time      `json:"expires_at"`
	Note       string         `json:"note,omitempty"` // what the attempt waits for, as its agent says
	EndedAt    *time.Time     `json:"ended_at,omitempty"`
	Outcome    Outcome        `json:"outcome,omitempty"`
	ExitCode   *int           `json:"exit_code,omitempty"` // absent when the program never ended by itself
	Duration   *Duration      `json:"duration,omitempty"`  // as the agent measured it
	Reason     string         `json:"reason,omitempty"`
	LogBytes   int64          `json:"log_bytes"`                     // stored so far
	LogFinal   bool           `json:"log_final"`                     // no more will come
	Cancelled  *time.Time     `json:"cancel_requested_at,omitempty"` // when its end was asked for
	Artifacts  []Artifact     `json:"artifacts,omitempty"`           // what the attempt left behind
	OutputTail string         `json:"output_tail,omitempty"`         // the last bytes of stdout and stderr, bad UTF-8 replaced; see MaxTails
}

// Artifact is a declared output that an attempt left behind. It counts once the
// attempt has succeeded.
type Artifact struct {
	Job     string    `json:"job"`
	Name    string    `json:"name"`
	Path    string    `json:"path"` // below the working directory
	Digest  string    `json:"digest"`
	Size    int64     `json:"size"` // bytes of the stored form, a tar in zstd
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
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
