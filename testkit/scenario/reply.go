// COMMIT's reply is lost: what the database did is true, and nobody was told.

package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// Parts of the statements whose replies are lost.
const (
	leaseStatement    = "INSERT INTO forge.leases"
	completeStatement = "UPDATE forge.leases l SET state = 'done'"
	submitStatement   = "INSERT INTO forge.runs"
)

// LoseLeaseReply loses the reply to a batch of leases under load, wholly or (tail)
// but for the word that it is committed. The owner cannot know, so it spends the
// epoch; the role goes on under a higher one, and the leases that were made are
// neither made again nor started twice.
func LoseLeaseReply(t testing.TB, w *World, tail bool) {
	for range tries {
		if w.loseLeaseReply(t, tail) {
			return
		}
	}
	require.FailNow(t, "nothing was committed before a reply was lost")
}

// loseLeaseReply reports whether the batch had made leases: one whose whole plan
// was outdated makes none.
func (w *World) loseLeaseReply(t testing.TB, tail bool) bool {
	t.Helper()
	w.moreLeases(t, 20)
	var since time.Time
	w.database(t, func(ctx context.Context, c *pgx.Conn) {
		require.NoError(t, c.QueryRow(ctx, `SELECT coordination.clock()`).Scan(&since))
	})
	owner, ended := w.loseOwnersReply(t, tail)
	epoch := ended.Epoch
	_, after := w.owner(t, epoch)
	step(t, owner, epoch, trace.Spent)

	var made int
	eventually(t, "the leases of the lost reply end", func() bool {
		made = w.count(t, `SELECT count(*) FROM forge.leases WHERE epoch = $1 AND leased_at >= $2`, int64(epoch), since)
		return w.count(t, `SELECT count(*) FROM forge.leases WHERE epoch = $1 AND leased_at >= $2 AND state = 'active'`, int64(epoch), since) == 0
	})
	require.Zero(t, w.count(t, `SELECT count(*) FROM forge.leases WHERE epoch = $1 AND leased_at >= $2 AND outcome IS DISTINCT FROM 'succeeded'`, int64(epoch), since),
		"a lease whose maker did not hear of it was not used")
	w.moreLeases(t, 10)
	t.Logf("the reply of a batch of %s was lost (tail only: %t): epoch %d (%s) -> %d; %d leases of it ended well", owner.Name, tail, epoch, ended.Detail, after, made)
	return made > 0
}

// loseOwnersReply arms the loss at whoever owns the role until a reply was lost, and
// returns how the epoch ended to which that happened.
func (w *World) loseOwnersReply(t testing.TB, tail bool) (*fleet.Node, trace.Event) {
	t.Helper()
	for range tries {
		owner, epoch := w.owner(t, 0)
		before := owner.Proxy().LostReplies()
		owner.Proxy().LoseReply(fleet.Loss{SQL: leaseStatement, Tail: tail})
		ended := step(t, owner, epoch, trace.Inactive)
		owner.Proxy().KeepReplies()
		if owner.Proxy().LostReplies() > before {
			return owner, ended
		}
		t.Logf("void: epoch %d of %s ended (%s) before a reply was lost", epoch, owner.Name, ended.Detail)
	}
	require.FailNow(t, "no reply could be lost")
	return nil, trace.Event{}
}

// LoseCompletionReply loses the reply to a batch of completions. Their agents tell
// them again and are told that all is well: each job ended once, in one attempt.
func LoseCompletionReply(t testing.TB, w *World) {
	w.moreLeases(t, 10)
	const jobs = 8
	n, before := w.loseReply(t, completeStatement)
	run := w.submitSpec(t, fleet.ShellRun("completed", jobs, "true"))
	w.lostOne(t, n, before)
	for _, j := range w.ended(t, run, runner.RunSucceeded).Jobs {
		require.Equal(t, 1, j.Attempt, "%s was repeated", j.Name)
		require.Equal(t, map[int]int{1: 1}, w.starts(t, j.ID))
	}
	t.Logf("a reply to completions of %s was lost", n.Name)
}

// loseReply asks a daemon that holds agents to lose a reply.
func (w *World) loseReply(t testing.TB, sql string) (*fleet.Node, uint64) {
	t.Helper()
	var found *fleet.Node
	eventually(t, "a daemon holds agents", func() bool {
		for _, n := range w.Nodes() {
			if w.count(t, `SELECT count(*) FROM forge.agents WHERE node = $1`, n.ID.String()) > 0 {
				found = n
				return true
			}
		}
		return false
	})
	before := found.Proxy().LostReplies()
	found.Proxy().LoseReply(fleet.Loss{SQL: sql})
	return found, before
}

// lostOne waits until the reply was lost. There must be work that goes on.
func (w *World) lostOne(t testing.TB, n *fleet.Node, before uint64) {
	t.Helper()
	for i := 0; ; i++ { // its agents may have moved; short jobs for all agents find those that are left
		if n.Proxy().LostReplies() > before {
			return
		}
		require.NoError(t, bounded(t).Err())
		w.ended(t, w.submitSpec(t, fleet.ShellRun(fmt.Sprint("more-", i), 8, "true")), runner.RunSucceeded)
	}
}

// LoseSubmissionReply loses the reply to a submission. Its client sends it again
// under the same key through another daemon, and there is one run. Nobody else may submit.
func LoseSubmissionReply(t testing.TB, w *World) {
	nodes, key := w.Nodes(), fmt.Sprintf("lost-%d", now())
	runs := func() int { return w.count(t, `SELECT count(*) FROM forge.runs WHERE idempotency_key = $1`, key) }
	before := nodes[0].Proxy().LostReplies()
	nodes[0].Proxy().LoseReply(fleet.Loss{SQL: submitStatement})
	spec := runner.RunSpec{Name: key, Jobs: []runner.JobSpec{shell("only", "true")}}
	status, told := w.post(t, nodes[0], key, spec)
	require.Equal(t, before+1, nodes[0].Proxy().LostReplies(), "no reply was lost; status %d", status)
	require.Equal(t, 1, runs(), "the submission was not committed")
	again, run := w.post(t, nodes[1], key, spec)
	require.Less(t, again, 300, "the client cannot find out")
	if status < 300 {
		require.Equal(t, told, run, "a daemon that read the truth read another one")
	}
	require.Equal(t, 1, runs(), "the submission was done twice")
	w.ended(t, run, runner.RunSucceeded)
	t.Logf("a submission's reply was lost: status %d, and %d when it was sent again", status, again)
}

// post submits under a key through one daemon and returns its status and the run.
func (w *World) post(t testing.TB, n *fleet.Node, key string, spec runner.RunSpec) (status int, run string) {
	t.Helper()
	body, err := json.Marshal(spec)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(bounded(t), http.MethodPost, n.Endpoint()+"/v1/runs", bytes.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(runner.IdempotencyHeader, key)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	var got runner.Run
	if resp.StatusCode < 300 {
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&got))
	}
	return resp.StatusCode, got.ID
}
