// A pipeline from its source to what its last job tests, its logs followed all the time, while daemons are killed.

package scenario

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// The source tree of the pipeline. say.sh NAME GATE says numbered lines and waits half-way for the gate.
var pipelineSource = map[string]string{
	"say.sh": `i=1
while [ $i -le 400 ]; do
  echo "$1 line $i"
  [ $((i % 40)) != 0 ] || sleep 0.02
  [ $i != 200 ] || until [ -e "$2" ]; do sleep 0.02; done
  i=$((i + 1))
done
`,
	"make.sh": `set -e
mkdir out
{ echo 'echo "the program was built from:"'; sed 's/^/echo /' words; } > out/program
head -c 3000000 /dev/urandom > out/data
sha256sum out/program out/data | tee out/sums
`,
}

// pipelineJobs are the names of its jobs, each of which needs the one before.
func pipelineJobs() []string { return []string{"check", "build", "test"} }

// Pipeline is one that runs. Each of its jobs waits half-way until it is let go.
type Pipeline struct {
	w         *World
	run       string
	gates     map[string]gate
	followers map[string]*follower // by job; "" follows the whole run
}

// StartPipeline uploads a source tree and submits three jobs in a chain; what
// build makes is carried to test. word goes wherever a user's text may go. The
// logs are followed by way of the leader first.
func StartPipeline(t testing.TB, w *World, word string) *Pipeline {
	ctx := bounded(t)
	dir := t.TempDir()
	for name, text := range pipelineSource {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "words"), []byte(word+"-source\n"), 0o644))
	digest, err := w.Upload(ctx, dir)
	require.NoError(t, err)

	p := &Pipeline{w: w, gates: map[string]gate{}, followers: map[string]*follower{}}
	spec := runner.RunSpec{Name: word + "-run", Queue: word + "-queue", Source: digest}
	for i, name := range pipelineJobs() {
		p.gates[name] = w.gate(t, name)
		j := runner.JobSpec{Name: name, Env: map[string]string{"WORD": word + "-env"}, Steps: []runner.Step{
			{Name: word + "-step", Argv: []string{"sh", "say.sh", name, string(p.gates[name])}},
		}}
		switch name {
		case "check":
			j.Steps = append(j.Steps, runner.Step{Argv: []string{"sh", "-c", "echo $WORD; echo " + word + "-log"}})
		case "build":
			j.Steps = append(j.Steps, runner.Step{Argv: []string{"sh", "make.sh"}})
			j.Outputs = []runner.Output{{Name: "out", Path: "out"}}
		case "test":
			j.Steps = append(j.Steps, runner.Step{Argv: []string{"sh", "out/program"}}, runner.Step{Argv: []string{"sha256sum", "-c", "out/sums"}})
		}
		if i > 0 {
			j.Needs = []string{pipelineJobs()[i-1]}
		}
		spec.Jobs = append(spec.Jobs, j)
	}
	p.run = w.submitSpec(t, spec)
	leader, err := w.Leader(ctx)
	require.NoError(t, err)
	nodes := []*fleet.Node{leader}
	for _, n := range w.Nodes() {
		if n != leader {
			nodes = append(nodes, n)
		}
	}
	for _, name := range append(pipelineJobs(), "") {
		p.followers[name] = w.follow(t, nodes, p.run, name)
	}
	return p
}

// half waits until the log of a job was shown up to the middle, where the job waits.
func (p *Pipeline) half(t testing.TB, job string) {
	t.Helper()
	p.followers[job].shows(t, fmt.Sprintf("%s line %d", job, spokenLines/2))
}

// KillLeaderAt kills the leader while a job runs, lets the job end without it, and starts it again.
func (p *Pipeline) KillLeaderAt(t testing.TB, job string) {
	p.half(t, job)
	leader, err := p.w.Leader(bounded(t))
	require.NoError(t, err)
	p.without(t, leader, job)
}

// KillDaemonOfAgentAt does that to the daemon to which the job's agent is linked.
func (p *Pipeline) KillDaemonOfAgentAt(t testing.TB, job string) {
	p.half(t, job)
	var id string
	agent := p.w.started(t, p.run, job)
	require.NoError(t, p.w.Query(bounded(t), `SELECT node FROM forge.agents WHERE id = $1 AND node IS NOT NULL`, []any{agent}, &id))
	for _, n := range p.w.Nodes() {
		if n.ID.String() == id {
			p.without(t, n, job)
			return
		}
	}
	require.Fail(t, "the agent is linked to no daemon of the fleet", id)
}

// without kills a daemon and starts it again once the job's completion was accepted by another one.
func (p *Pipeline) without(t testing.TB, n *fleet.Node, job string) {
	t.Helper()
	t.Logf("%s is killed while %s runs", n.Name, job)
	require.NoError(t, n.Kill())
	p.gates[job].open(t)
	eventually(t, job+" ends without "+n.Name, func() bool { return p.w.job(t, p.run, job).FinishedAt != nil })
	require.NoError(t, n.Resume(bounded(t)))
	p.w.whole(t, n)
}

// Let lets a job go on in peace.
func (p *Pipeline) Let(t testing.TB, job string) {
	p.half(t, job)
	p.gates[job].open(t)
}

// Check requires that the run succeeded, each job in one attempt that was started
// once; that its followers have shown each line once, byte for byte what any
// daemon has; and that every daemon gives the same artifact, which is what build made.
func (p *Pipeline) Check(t testing.TB) {
	ctx := bounded(t)
	run := p.w.ended(t, p.run, runner.RunSucceeded)
	logs := map[string]string{}
	for _, j := range run.Jobs {
		require.Equal(t, 1, j.Attempt, "%s was repeated", j.Name)
		require.Equal(t, map[int]int{1: 1}, p.w.starts(t, j.ID), "starts of %s in the agents' logs", j.Name)
		logs[j.Name] = p.followers[j.Name].end(t, ctx)
		checkLines(t, logs[j.Name], j.Name)
		for _, n := range p.w.Nodes() {
			require.Equal(t, logs[j.Name], string(p.read(t, n, "/jobs/"+j.Name+"/logs?follow=true")), "the log of %s by %s", j.Name, n.Name)
		}
	}
	checkLines(t, p.followers[""].end(t, ctx), pipelineJobs()...)
	require.Contains(t, logs["test"], "the program was built from:")
	require.Contains(t, logs["test"], "out/data: OK")

	var first []byte
	for i, n := range p.w.Nodes() {
		got := p.read(t, n, "/jobs/build/artifacts/out")
		if i == 0 {
			first = got
			continue
		}
		require.True(t, string(first) == string(got), "%s gives another artifact", n.Name)
	}
	dir := filepath.Join(t.TempDir(), "got")
	_, err := artifact.UnpackZstd(ctx, strings.NewReader(string(first)), dir, artifact.Limits{})
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(dir, "out", "data"))
	require.NoError(t, err)
	require.Contains(t, logs["build"], fmt.Sprintf("%x  out/data\n", sha256.Sum256(data)))
}

// read is what a daemon answers below the run.
func (p *Pipeline) read(t testing.TB, n *fleet.Node, path string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(bounded(t), http.MethodGet, n.Endpoint()+"/v1/runs/"+p.run+path, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s%s: %.500s", n.Name, path, b)
	return b
}
