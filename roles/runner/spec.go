// What a client submits: the run specification, its bounds and its refusals.

package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forgeyard/forgeyard/roles/artifact"
)

// Bounds of a run specification. All sizes are in bytes.
const (
	MaxJobs           = 2000
	MaxRunBytes       = 8 << 20 // all texts of a run together, with textCost for each
	MaxName           = 128
	MaxSteps          = 64
	MaxArguments      = 256      // of a step
	MaxArgumentBytes  = 32 << 10 // all arguments of a job together
	MaxVariables      = 256
	MaxVariableBytes  = 32 << 10 // all names and values of a job together
	MaxLabels         = 32
	MaxLabel          = 64
	MaxQueue          = 64
	MaxNeeds          = 64 // of a job
	MaxOutputs        = 32 // of a job
	MaxOutputPath     = 512
	MaxIdempotencyKey = 128
	MaxAttemptLimit   = 10
	MaxRetries        = MaxAttemptLimit - 1
	MaxTimeout        = 24 * time.Hour

	DefaultTimeout      = time.Hour
	DefaultAttemptLimit = 3 // on top of the retries, and never above MaxAttemptLimit
	DefaultQueue        = "default"
)

// Duration is a time.Duration that reads and writes as text such as "90s" or "5m".
type Duration time.Duration

// MarshalText writes the duration as Go writes it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("duration %q: write a number and a unit, such as \"90s\" or \"5m\"", b)
	}
	*d = Duration(v)
	return nil
}

// RunSpec is the body of POST /v1/runs.
type RunSpec struct {
	Name   string    `json:"name"`
	Queue  string    `json:"queue,omitempty"`  // of all its jobs; queues share the agents fairly. "" means DefaultQueue
	Source string    `json:"source,omitempty"` // digest of an uploaded source, unpacked where each job starts; "" means none
	Jobs   []JobSpec `json:"jobs"`             // 1 to MaxJobs
}

// Step is one command of a job; no shell is involved.
type Step struct {
	Name string   `json:"name,omitempty" cbor:"1,keyasint,omitempty"` // shown in the log
	Argv []string `json:"argv" cbor:"2,keyasint"`                     // the program and its arguments
}

// JobSpec is what runs in one working directory on one agent.
type JobSpec struct {
	Name         string            `json:"name"`                    // unique within the run
	Argv         []string          `json:"argv,omitempty"`          // short for one step without a name
	Steps        []Step            `json:"steps,omitempty"`         // 1 to MaxSteps, in order; the first that fails ends the attempt
	Env          map[string]string `json:"env,omitempty"`           // added to the agent's small base environment
	Labels       []string          `json:"labels,omitempty"`        // the agent must carry all of them
	Needs        []string          `json:"needs,omitempty"`         // jobs of the run that must succeed first; their outputs are put in place
	Outputs      []Output          `json:"outputs,omitempty"`       // what is kept when the job succeeds
	Priority     int               `json:"priority,omitempty"`      // -100 to 100, higher first
	Timeout      Duration          `json:"timeout,omitempty"`       // 0 means DefaultTimeout
	AttemptLimit int               `json:"attempt_limit,omitempty"` // of leases, lost ones among them: 1 to MaxAttemptLimit; 0 means the default
	Retries      int               `json:"retries,omitempty"`       // how often a failed attempt is repeated, 0 to MaxRetries
}

// normal returns the specification with its defaults filled in and labels sorted.
func (s RunSpec) normal() RunSpec {
	if s.Queue == "" {
		s.Queue = DefaultQueue
	}
	s.Jobs = slices.Clone(s.Jobs)
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.Timeout == 0 {
			j.Timeout = Duration(DefaultTimeout)
		}
		if len(j.Steps) == 0 {
			j.Steps = []Step{{Argv: j.Argv}}
		}
		j.Argv = nil
		if j.AttemptLimit == 0 {
			j.AttemptLimit = min(MaxAttemptLimit, j.Retries+DefaultAttemptLimit)
		}
		j.Labels = slices.Compact(slices.Sorted(slices.Values(j.Labels)))
		j.Needs = slices.Sorted(slices.Values(j.Needs))
	}
	return s
}

// Validate says what is wrong with the specification, naming the job and the field; nil when nothing is.
func (s RunSpec) Validate() error {
	if err := name("name", s.Name); err != nil {
		return err
	}
	if s.Queue != "" && !plain(s.Queue, MaxQueue) {
		return fmt.Errorf("queue: %.80q is not 1 to %d letters, digits or any of . _ - / : =", s.Queue, MaxQueue)
	}
	if s.Source != "" {
		if _, err := artifact.ParseDigest(s.Source); err != nil {
			return fmt.Errorf("source: %w", err)
		}
	}
	if len(s.Jobs) == 0 || len(s.Jobs) > MaxJobs {
		return fmt.Errorf("jobs: a run has 1 to %d jobs, this one has %d", MaxJobs, len(s.Jobs))
	}
	seen := make(map[string]int, len(s.Jobs))
	for i, j := range s.Jobs {
		if err := j.validate(); err != nil {
			return fmt.Errorf("jobs[%d].%w", i, err)
		}
		if first, dup := seen[j.Name]; dup {
			return fmt.Errorf("jobs[%d].name: %q is already the name of jobs[%d]", i, j.Name, first)
		}
		seen[j.Name] = i
	}
	if n := s.size(); n > MaxRunBytes {
		return fmt.Errorf("jobs: their steps, variables, labels, needs and outputs together are %d bytes, more than %d", n, MaxRunBytes)
	}
	return s.validateNeeds(seen)
}

// textCost is what a text costs beside its bytes wherever a run is stored, sent or shown.
const textCost = 8

// size is what all jobs together take, however they share it out: each bound of a
// job times MaxJobs would be hundreds of megabytes, which every reading of the run moves.
func (s RunSpec) size() (n int) {
	add := func(texts ...string) {
		for _, t := range texts {
			n += len(t) + textCost
		}
	}
	for _, j := range s.Jobs {
		add(j.Name)
		add(j.Argv...)
		for _, st := range j.Steps {
			add(st.Name)
			add(st.Argv...)
		}
		for k, v := range j.Env {
			add(k, v)
		}
		add(j.Labels...)
		add(j.Needs...)
		for _, o := range j.Outputs {
			add(o.Name, o.Path)
		}
	}
	return n
}

func (j JobSpec) validate() error {
	if err := name("name", j.Name); err != nil {
		return err
	}
	if err := j.validateSteps(); err != nil {
		return err
	}
	pairs := make([]string, 0, len(j.Env))
	for k, v := range j.Env {
		if k == "" || strings.Contains(k, "=") {
			return fmt.Errorf("env: %q is no variable name", k)
		}
		pairs = append(pairs, k+"="+v)
	}
	if err := texts("env", pairs, MaxVariables, MaxVariableBytes); err != nil {
		return err
	}
	if err := ValidateLabels(j.Labels); err != nil {
		return err
	}
	switch {
	case j.Priority < -100 || j.Priority > 100:
		return fmt.Errorf("priority: %d is not within -100 and 100", j.Priority)
	case j.Timeout != 0 && (j.Timeout < Duration(time.Millisecond) || j.Timeout > Duration(MaxTimeout)):
		return fmt.Errorf("timeout: %s is not within 1ms and %s", time.Duration(j.Timeout), MaxTimeout)
	case j.AttemptLimit < 0 || j.AttemptLimit > MaxAttemptLimit:
		return fmt.Errorf("attempt_limit: %d is not within 1 and %d", j.AttemptLimit, MaxAttemptLimit)
	case j.Retries < 0 || j.Retries > MaxRetries:
		return fmt.Errorf("retries: %d is not within 0 and %d", j.Retries, MaxRetries)
	case j.AttemptLimit != 0 && j.Retries >= j.AttemptLimit:
		return fmt.Errorf("retries: %d retries need an attempt_limit above %d, not %d", j.Retries, j.Retries, j.AttemptLimit)
	}
	return j.validateOutputs()
}

func (j JobSpec) validateOutputs() error {
	if len(j.Outputs) > MaxOutputs {
		return fmt.Errorf("outputs: %d are more than %d", len(j.Outputs), MaxOutputs)
	}
	seen := make(map[string]bool, len(j.Outputs))
	for i, o := range j.Outputs {
		switch {
		case !ValidArtifactName(o.Name):
			return fmt.Errorf("outputs[%d].name: %.140q is not 1 to %d letters, digits or any of . _ -", i, o.Name, MaxName)
		case seen[o.Name]:
			return fmt.Errorf("outputs[%d].name: %q is there already", i, o.Name)
		case len(o.Path) > MaxOutputPath || !fs.ValidPath(o.Path) || name("path", o.Path) != nil || strings.Contains(o.Path, "\\"):
			return fmt.Errorf("outputs[%d].path: %.140q is no clean path below the working directory", i, o.Path)
		}
		seen[o.Name] = true
	}
	return nil
}

// ValidArtifactName reports whether an output may have the name: it is part of URLs and file names.
func ValidArtifactName(s string) bool {
	return plain(s, MaxName) && !strings.ContainsAny(s, "/:=") && s != "." && s != ".."
}

func (j JobSpec) validateSteps() error {
	switch {
	case len(j.Steps) == 0:
		return argv("argv", j.Argv)
	case len(j.Argv) > 0:
		return errors.New("argv: a job has argv or steps, not both")
	case len(j.Steps) > MaxSteps:
		return fmt.Errorf("steps: %d are more than %d", len(j.Steps), MaxSteps)
	}
	total := 0
	for i, s := range j.Steps {
		if s.Name != "" {
			if err := name("name", s.Name); err != nil {
				return fmt.Errorf("steps[%d].%w", i, err)
			}
		}
		if err := argv("argv", s.Argv); err != nil {
			return fmt.Errorf("steps[%d].%w", i, err)
		}
		for _, a := range s.Argv {
			total += len(a)
		}
	}
	if total > MaxArgumentBytes {
		return fmt.Errorf("steps: %d bytes of arguments are more than %d", total, MaxArgumentBytes)
	}
	return nil
}

func argv(field string, argv []string) error {
	if len(argv) == 0 || argv[0] == "" {
		return fmt.Errorf("%s: the program to run is missing", field)
	}
	return texts(field, argv, MaxArguments, MaxArgumentBytes)
}

// ValidateLabels says what is wrong with a set of labels; nil when nothing is.
func ValidateLabels(labels []string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("labels: %d are more than %d", len(labels), MaxLabels)
	}
	for _, l := range labels {
		if !plain(l, MaxLabel) {
			return fmt.Errorf("labels: %q is not 1 to %d letters, digits or any of . _ - / : =", l, MaxLabel)
		}
	}
	return nil
}

func name(field, s string) error {
	if s == "" || len(s) > MaxName {
		return fmt.Errorf("%s: %d bytes are not within 1 and %d", field, len(s), MaxName)
	}
	for _, r := range s {
		if r == utf8.RuneError || r < ' ' || r == 0x7f {
			return fmt.Errorf("%s: %q has a control character or is not UTF-8", field, s)
		}
	}
	return nil
}

func texts(field string, all []string, count, size int) error {
	if len(all) > count {
		return fmt.Errorf("%s: %d are more than %d", field, len(all), count)
	}
	total := 0
	for _, s := range all {
		total += len(s)
		// PostgreSQL stores neither; an exec'd program could not receive a NUL either.
		if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			return fmt.Errorf("%s: %.64q is not UTF-8 or contains a NUL", field, s)
		}
	}
	if total > size {
		return fmt.Errorf("%s: %d bytes are more than %d", field, total, size)
	}
	return nil
}

// plain reports whether s is 1 to limit bytes that need no quoting anywhere.
func plain(s string, limit int) bool {
	return s != "" && len(s) <= limit && strings.IndexFunc(s, isNotNameRune) < 0
}

func isNotNameRune(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/:=", r))
}
