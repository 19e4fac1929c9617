// The work of a chaos run: pipelines of short jobs whose end is known beforehand.

package chaos

import (
	"fmt"
	"strings"
	"time"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// JobsOfAPipeline is how many jobs Pipeline makes.
const JobsOfAPipeline = 20

// LogLines is how many numbered lines each job named LinesJob writes.
const LogLines = 300

// Names of jobs whose results a checker looks at.
const (
	BuildJob    = "build"
	BuildOutput = "binary"
	LinesJob    = "lines-1"
)

// surviving bounds the attempts of every job: faults may take nine of them.
const surviving = runner.MaxAttemptLimit

// Pipeline is the i-th run: a build whose output is carried through two jobs, jobs
// that write long logs, one that fails at first, one that always fails and one
// that must therefore be skipped, and many that only take a moment.
func Pipeline(i int, source string) runner.RunSpec {
	built := Built(i)
	spec := runner.RunSpec{Name: fmt.Sprintf("pipeline-%04d", i), Queue: fmt.Sprintf("queue-%d", i%4), Source: source}
	add := func(name, script string, change func(*runner.JobSpec)) {
		j := runner.JobSpec{
			Name: name, Steps: []runner.Step{{Argv: []string{"sh", "-c", script}}},
			Timeout: runner.Duration(10 * time.Minute), AttemptLimit: surviving,
		}
		if change != nil {
			change(&j)
		}
		spec.Jobs = append(spec.Jobs, j)
	}
	keep := func(j *runner.JobSpec) { j.Outputs = []runner.Output{{Name: BuildOutput, Path: "out/binary"}} }
	add(BuildJob, "mkdir out && sleep 0.3 && echo "+built+" >out/binary", keep)
	add("test", `test "$(cat out/binary)" = `+built+" && echo tested >out/result", func(j *runner.JobSpec) {
		keep(j)
		j.Needs = []string{BuildJob}
	})
	add("deploy", `test "$(cat out/binary)" = `+built, func(j *runner.JobSpec) { j.Needs = []string{"test"} })
	for _, name := range []string{LinesJob, "lines-2"} {
		add(name, fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); echo "line $i"; [ $((i%%100)) -ne 0 ] || sleep 0.4; done`, LogLines), nil)
	}
	add("flaky", `test "$FORGEYARD_ATTEMPT" -gt 1`, func(j *runner.JobSpec) { j.Retries = 2 })
	add("broken", "echo broken; exit 3", func(j *runner.JobSpec) { j.Retries = 1 })
	add("after-broken", "echo never", func(j *runner.JobSpec) { j.Needs = []string{"broken"} })
	for n := len(spec.Jobs); n < JobsOfAPipeline; n++ {
		add(fmt.Sprintf("plain-%02d", n), fmt.Sprintf("echo plain; sleep 0.%d", 1+n%9), func(j *runner.JobSpec) { j.Priority = n % 3 })
	}
	if source != "" {
		spec.Jobs[len(spec.Jobs)-1].Steps[0].Argv[2] = "test -f source.txt"
	}
	return spec
}

// Built is what the build of the i-th run makes.
func Built(i int) string { return fmt.Sprintf("built-by-run-%d", i) }

// ExpectedLog is the whole log of a job named LinesJob.
func ExpectedLog() string {
	var b strings.Builder
	for i := range LogLines {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	return b.String()
}
