// An attempt's bytes, from the agent's side: inputs, outputs and the log, also when the store is away.

package runner_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// TestInputsAndOutputs: source first, then the needs' artifacts, then the steps,
// then the outputs, and only then the completion.
func TestInputsAndOutputs(t *testing.T) {
	w := newWarehouse()
	c := carry(t, t.TempDir(), w, processes())
	o := shell("l1", `sh build.sh; cat out/needed out/own > out/result; echo $HOME > home; [ -d "$HOME" -a -d "$TMPDIR" ]`)
	o.Source = w.keep(t, map[string]string{"build.sh": "echo own > out/own", "out/needed": "of the source\n"})
	o.Inputs = []runner.Input{{Job: "before", Name: "thing", Path: "out", Digest: w.keep(t, map[string]string{"out/needed": "of the need\n"})}}
	o.Outputs = []runner.Output{{Name: "all", Path: "out"}, {Name: "home", Path: "./home"}}
	c.begin(o)
	done := c.ends()
	require.Equal(t, runner.Succeeded, done.Outcome, done.Reason)
	w.locked(func() {
		require.Len(t, w.outputs, 2, "stored before the completion")
		dest := filepath.Join(t.TempDir(), "again")
		_, err := artifact.UnpackZstd(t.Context(), strings.NewReader(string(w.blobs[w.outputs["all"].Digest])), dest, artifact.Limits{})
		require.NoError(t, err)
		b, err := os.ReadFile(filepath.Join(dest, "out", "result"))
		require.NoError(t, err)
		require.Equal(t, "of the need\nown\n", string(b), "a need's artifact takes the place of the source's file")
	})
	left, err := os.ReadDir(filepath.Join(c.dir, "work"))
	require.NoError(t, err)
	require.Empty(t, left, "the working directory is gone")
}

// TestWhatCannotBeGivenOrKept ends the attempt with the reason.
func TestWhatCannotBeGivenOrKept(t *testing.T) {
	w := newWarehouse()
	garbage := artifact.DigestOf([]byte("no archive")).String()
	w.blobs[garbage] = []byte("no archive")
	absent := artifact.DigestOf([]byte("absent")).String()
	c := carry(t, t.TempDir(), w, processes())
	for i, k := range []struct {
		change  func(*runner.Offer)
		outcome runner.Outcome
		reason  string
	}{
		{func(o *runner.Offer) { o.Outputs = []runner.Output{{Name: "report", Path: "report.xml"}} }, runner.Failed, `the declared output report is missing: nothing is at "report.xml"`},
		{func(o *runner.Offer) { o.Outputs = []runner.Output{{Name: "shadow", Path: "../../../../etc/passwd"}} }, runner.Failed, "the declared output shadow cannot be kept"},
		{func(o *runner.Offer) { o.Source = garbage }, runner.Errored, "its source cannot be unpacked"},
		{func(o *runner.Offer) { o.Inputs = []runner.Input{{Job: "a", Name: "b", Digest: absent}} }, runner.Errored, "the artifact b of a cannot be fetched: FY-CAS-003"},
		{func(o *runner.Offer) {
			o.Source = w.keep(t, map[string]string{"x": ""})
			o.Inputs = []runner.Input{{Job: "a", Name: "b", Digest: w.keep(t, map[string]string{"x/y": ""})}}
		}, runner.Errored, "x is a directory in one archive and none in another"},
		{func(o *runner.Offer) { // each fits on the agent's disk, and is stored in a few kB
			o.Source = w.keep(t, map[string]string{"x": strings.Repeat("\x00", 40<<20)})
			o.Inputs = []runner.Input{{Job: "a", Name: "b", Digest: w.keep(t, map[string]string{"y": strings.Repeat("\x00", 40<<20)})}}
		}, runner.Errored, "the artifact b of a cannot be unpacked: FY-TAR-006"},
	} {
		o := shell(fmt.Sprintf("l%d", i), "true")
		k.change(o)
		c.begin(o)
		done := c.ends()
		require.Equal(t, k.outcome, done.Outcome, done.Reason)
		require.Contains(t, done.Reason, k.reason)
		say(t, c.Link, runner.Message{Completed: &runner.Completed{Lease: o.Lease, Accepted: true}})
	}
}

// TestStoreIsAway: an attempt whose inputs cannot be fetched waits and says so;
// it goes on when the store is back, and gives its lease up at its time limit:
// nothing of the job has run.
func TestStoreIsAway(t *testing.T) {
	w := newWarehouse()
	c := carry(t, t.TempDir(), w, processes())
	waits, gives := shell("l1", "cat file"), shell("l2", "true")
	waits.Source = w.keep(t, map[string]string{"file": "content\n"})
	gives.Source, gives.Timeout = waits.Source, 500*time.Millisecond
	w.setDown(true)
	c.begin(gives)
	r := hear(t, c.Link, func(m runner.Message) *runner.Release { return m.Release })
	require.Contains(t, r.Reason, "its source cannot be fetched: FY-CAS-001")
	require.False(t, r.Started)
	say(t, c.Link, runner.Message{Completed: &runner.Completed{Lease: "l2", Accepted: true}})

	c.begin(waits)
	hear(t, c.Link, func(m runner.Message) *runner.Progress {
		if m.Beat != nil {
			for i, p := range m.Beat.Leases {
				if strings.Contains(p.Note, "waiting for its source: FY-CAS-001") {
					return &m.Beat.Leases[i]
				}
			}
		}
		return nil
	})
	w.setDown(false)
	done := c.ends()
	require.Equal(t, runner.Succeeded, done.Outcome, done.Reason)
	require.Equal(t, "content\n", string(done.Tail))
}

// TestOutputCannotBeStored: what ran once is not given up because a result cannot be kept; it ends as an error.
func TestOutputCannotBeStored(t *testing.T) {
	w := newWarehouse()
	c := carry(t, t.TempDir(), w, runner.ExecutorFunc(func(_ context.Context, tk runner.Task, _ io.Writer) runner.Exit {
		require.NoError(t, os.WriteFile(filepath.Join(tk.Dir, "x"), nil, 0o600))
		return exit(0)
	}))
	o := order("l1", 1, 1)
	o.Outputs, o.Timeout = []runner.Output{{Name: "x", Path: "x"}}, time.Second
	w.setDown(true)
	c.begin(o)
	done := c.ends()
	require.Equal(t, runner.Errored, done.Outcome)
	require.Contains(t, done.Reason, "the output x cannot be stored: FY-CAS-001")
}

// TestLogIsLiveAndWhole: output arrives while the job runs; streams break in
// the middle, before and after acknowledgements, and no line is lost, none twice.
func TestLogIsLiveAndWhole(t *testing.T) {
	w := newWarehouse()
	w.cutLogs = 4
	c := carry(t, t.TempDir(), w, processes())
	c.begin(shell("l1", `echo first; until [ -e go ]; do sleep 0.01; done; seq 200000; echo last`))
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return string(w.logs["l1"]) == "first\n"
	}, soon, 5*time.Millisecond)
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "work", "l1", "job", "go"), nil, 0o600))
	done := c.ends()
	log := w.theLog(t, "l1")
	require.EqualValues(t, len(log), done.LogBytes)
	var want strings.Builder
	want.WriteString("first\n")
	for i := range 200000 {
		fmt.Fprintf(&want, "%d\n", i+1)
	}
	require.True(t, want.String()+"last\n" == log, "the log differs")
	require.Zero(t, w.repeats)
	require.Zero(t, w.cutLogs)
	require.Eventually(t, func() bool {
		left, err := os.ReadDir(filepath.Join(c.dir, "logs"))
		return err == nil && len(left) == 0
	}, soon, 5*time.Millisecond, "the spool is gone")
}

// TestEndsOnDemand: the time limit and a client's order end a job that ignores SIGTERM.
func TestEndsOnDemand(t *testing.T) {
	c := carry(t, t.TempDir(), newWarehouse(), processes())
	const stubborn = `trap '' TERM; echo up; while :; do sleep 1; done`
	slow := shell("l1", stubborn)
	slow.Timeout = 300 * time.Millisecond
	c.begin(slow)
	done := c.ends()
	require.Equal(t, runner.TimedOut, done.Outcome, done.Reason)
	say(t, c.Link, runner.Message{Completed: &runner.Completed{Lease: "l1", Accepted: true}})
	c.begin(shell("l2", stubborn))
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return string(c.logs["l2"]) == "up\n"
	}, soon, 5*time.Millisecond)
	say(t, c.Link, runner.Message{Cancel: &runner.CancelOrder{Lease: "l2"}})
	for done.Lease != "l2" {
		done = c.ends()
	}
	require.Equal(t, runner.Cancelled, done.Outcome, done.Reason)
}

// TestFloodOfOutput costs the agent no more than the limit and the job nothing.
func TestFloodOfOutput(t *testing.T) {
	w := newWarehouse()
	c := carry(t, t.TempDir(), w, processes())
	o := shell("l1", `head -c 50000000 /dev/zero | tr '\0' x; echo; echo the end`)
	o.LogLimit = 1 << 20
	c.begin(o)
	done := c.ends()
	require.Equal(t, runner.Succeeded, done.Outcome)
	require.True(t, strings.HasSuffix(string(done.Tail), "x\nthe end\n"))
	log := w.theLog(t, "l1")
	require.Equal(t, strings.Repeat("x", 1<<20)+"\n== the log ends here: it is limited to 1048576 bytes, the rest of the output was dropped\n", log)
}

// TestLogOutlivesItsAgent: a log that could not be stored is brought away by the agent's next process.
func TestLogOutlivesItsAgent(t *testing.T) {
	w, dir := newWarehouse(), t.TempDir()
	w.setDown(true)
	c := carry(t, dir, w, processes())
	c.begin(shell("l1", "echo kept"))
	done := c.ends()
	require.EqualValues(t, 5, done.LogBytes)
	c.stop()
	require.Empty(t, w.logs)
	w.setDown(false)
	again := carry(t, dir, w, processes())
	require.Equal(t, "kept\n", w.theLog(t, "l1"))
	require.EqualValues(t, 5, again.ends().LogBytes, "the completion was not acknowledged")
}
