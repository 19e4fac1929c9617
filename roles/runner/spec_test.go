// The bound of a whole run, beside those of each job.

package runner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRunBytes: jobs that are each within their bounds may be too much together,
// whichever of their texts it is; one byte less is accepted.
func TestRunBytes(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n-textCost) }
	steps := func(n int) (s []Step) { // steps of n bytes together
		for ; n > 0; n -= min(n, 512) {
			s = append(s, Step{Argv: []string{text(min(n, 512) - textCost)}})
		}
		return s
	}
	for name, fill := range map[string]func(j *JobSpec, n int){
		"arguments": func(j *JobSpec, n int) { j.Steps = steps(n) },
		"variables": func(j *JobSpec, n int) {
			j.Steps = steps(512)
			j.Env = map[string]string{"A": text(n - 512 - 1 - textCost)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			part := 16 << 10
			spec := RunSpec{Name: "r"}
			for n := MaxRunBytes; n > 0; n -= part {
				j := JobSpec{Name: fmt.Sprintf("%08d", len(spec.Jobs))}
				fill(&j, min(n, part)-8-textCost)
				spec.Jobs = append(spec.Jobs, j)
			}
			require.Equal(t, MaxRunBytes, spec.size())
			require.NoError(t, spec.Validate())
			spec.Jobs[0].Name += "x"
			require.EqualError(t, spec.Validate(), "jobs: their steps, variables, labels, needs and outputs together are 8388609 bytes, more than 8388608")
		})
	}
}
