// Needs that no order satisfies, and other shapes of a run that are refused.

package runner

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestCircleOfNeeds: needs are refused exactly when no order of the jobs
// satisfies them, and what is named is a circle.
func TestCircleOfNeeds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "jobs")
		spec := RunSpec{Name: "r", Jobs: make([]JobSpec, n)}
		at := map[string]int{}
		for i := range spec.Jobs {
			spec.Jobs[i] = JobSpec{Name: fmt.Sprint("j", i), Argv: []string{"x"}}
			at[spec.Jobs[i].Name] = i
			for _, need := range rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 0, 3, rapid.ID).Draw(t, "needs") {
				if need != i {
					spec.Jobs[i].Needs = append(spec.Jobs[i].Needs, fmt.Sprint("j", need))
				}
			}
		}
		left := slices.Clone(spec.Jobs) // take away what has no need left, until nothing changes
		for changed := true; changed; {
			before := len(left)
			left = slices.DeleteFunc(left, func(j JobSpec) bool {
				return !slices.ContainsFunc(j.Needs, func(need string) bool {
					return slices.ContainsFunc(left, func(o JobSpec) bool { return o.Name == need })
				})
			})
			changed = len(left) < before
		}
		c := cycle(spec.Jobs, at)
		require.Equal(t, len(left) > 0, c != nil)
		require.Equal(t, c != nil, spec.Validate() != nil)
		if c != nil {
			require.Equal(t, c[0], c[len(c)-1])
			for k := range len(c) - 1 {
				require.Contains(t, spec.Jobs[c[k]].Needs, spec.Jobs[c[k+1]].Name)
			}
		}
	})
}

// TestRefusedShapes names what is wrong with queues, sources, needs, outputs, retries and steps.
func TestRefusedShapes(t *testing.T) {
	job := func(name string, needs ...string) JobSpec {
		return JobSpec{Name: name, Argv: []string{"x"}, Needs: needs}
	}
	with := func(change func(*JobSpec)) RunSpec {
		j := job("j")
		change(&j)
		return RunSpec{Name: "r", Jobs: []JobSpec{j}}
	}
	run := func(jobs ...JobSpec) RunSpec { return RunSpec{Name: "r", Jobs: jobs} }
	leaves := func(name, path string) JobSpec {
		j := job(name)
		j.Outputs = []Output{{Name: "o", Path: path}}
		return j
	}
	many := func(n int) (jobs []JobSpec) { // each leaves as much as it may
		for i := range n {
			j := job(fmt.Sprint("m", i))
			for k := range MaxOutputs {
				j.Outputs = append(j.Outputs, Output{Name: fmt.Sprint("o", k), Path: fmt.Sprint("dir-", i, "-", k)})
			}
			jobs = append(jobs, j)
		}
		return jobs
	}
	needsOf := func(jobs []JobSpec) (names []string) {
		for _, j := range jobs {
			names = append(names, j.Name)
		}
		return names
	}
	long := make([]JobSpec, 40)
	for i := range long {
		long[i] = job(fmt.Sprint("j", i), fmt.Sprint("j", (i+1)%len(long)))
	}
	for want, spec := range map[string]RunSpec{
		"queue: ":                     {Name: "r", Queue: "a b", Jobs: []JobSpec{job("j")}},
		"source: ":                    {Name: "r", Source: "sha256:12", Jobs: []JobSpec{job("j")}},
		`"b" is no job of this run`:   run(job("a", "b")),
		`"a" needs itself`:            run(job("a", "a")),
		`"b" is there twice`:          run(job("a", "b", "b"), job("b")),
		"a → b → c → a wait for":      run(job("a", "b"), job("b", "c"), job("c", "a")),
		"(28 more) → j0 wait for":     {Name: "r", Jobs: long},
		`both put an output at "dir"`: run(leaves("a", "dir"), leaves("b", "dir"), job("c", "a", "b")),
		"together they leave":         run(append(many(17), job("all", needsOf(many(17))...))...),
		"outputs[0].name":             with(func(j *JobSpec) { j.Outputs = []Output{{Name: "a/b", Path: "x"}} }),
		"outputs[1].name":             with(func(j *JobSpec) { j.Outputs = []Output{{Name: "a", Path: "x"}, {Name: "a", Path: "y"}} }),
		"outputs[0].path":             with(func(j *JobSpec) { j.Outputs = []Output{{Name: "a", Path: "../x"}} }),
		"retries: 10":                 with(func(j *JobSpec) { j.Retries = 10 }),
		"need an attempt_limit above": with(func(j *JobSpec) { j.Retries, j.AttemptLimit = 2, 2 }),
		"argv or steps, not both":     with(func(j *JobSpec) { j.Steps = []Step{{Argv: []string{"x"}}} }),
		"steps[1].argv: the program":  with(func(j *JobSpec) { j.Argv, j.Steps = nil, []Step{{Argv: []string{"x"}}, {}} }),
		"bytes of arguments are more": with(func(j *JobSpec) {
			j.Argv, j.Steps = nil, slices.Repeat([]Step{{Argv: []string{strings.Repeat("x", 20000)}}}, 2)
		}),
		"65 are more than 64": with(func(j *JobSpec) { j.Argv, j.Steps = nil, slices.Repeat([]Step{{Argv: []string{"x"}}}, 65) }),
	} {
		require.ErrorContains(t, spec.Validate(), want)
	}
	for _, path := range []string{"/x", "a/../b", "a//b", "./a", `a\b`, "", "a\n", strings.Repeat("x", MaxOutputPath+1)} {
		require.Error(t, with(func(j *JobSpec) { j.Outputs = []Output{{Name: "a", Path: path}} }).Validate(), path)
	}
	require.NoError(t, run(leaves("a", "one"), leaves("b", "two"), job("c", "a", "b"), job("d", "c", "a")).Validate())
	require.Equal(t, 8, RunSpec{Jobs: []JobSpec{{Retries: 5}}}.normal().Jobs[0].AttemptLimit, "three losses on top of the retries")
}
