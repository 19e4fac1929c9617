// Reading a run: an answer has its bound whatever the run's jobs wrote.

package runner_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// TestTailsAreBounded: of many full tails those of failed attempts come first, then the newest.
func TestTailsAreBounded(t *testing.T) {
	p := newPlane(t)
	const tail, jobs = 64 << 10, runner.MaxTails/(64<<10) + 8
	specs := make([]runner.JobSpec, jobs)
	for i := range specs {
		specs[i].Name = fmt.Sprintf("job-%02d", i)
	}
	run := p.submit(specs...)
	p.fenced(`INSERT INTO forge.leases (id, job_id, attempt, agent_id, expires_at, state, ended_at, outcome, output_tail)
 SELECT ('00000000-0000-0000-0000-' || lpad(seq::text, 12, '0'))::uuid, id, 1, 'a', now(), 'done', now(),
        CASE name WHEN 'job-00' THEN 'failed' ELSE 'succeeded' END, convert_to(repeat('x', $2), 'UTF8')
   FROM forge.jobs WHERE run_id = $1`, run, tail)

	got, err := runner.Get(t.Context(), p.store, run)
	require.NoError(t, err)
	var with []string
	for _, j := range got.Jobs {
		require.Len(t, j.Leases, 1)
		switch n := len(j.Leases[0].OutputTail); n {
		case tail:
			with = append(with, j.Name)
		default:
			require.Zero(t, n, "a tail is whole or missing")
		}
	}
	require.Len(t, with, runner.MaxTails/tail)
	require.Equal(t, "job-00", with[0], "it failed, so it is what one looks for")
	require.Equal(t, fmt.Sprintf("job-%02d", jobs-1), with[len(with)-1])
	require.Equal(t, "job-09", with[1], "the oldest of the others go first")
}
