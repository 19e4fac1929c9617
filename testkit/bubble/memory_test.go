// Nodes that have forgotten something: a member its data, a joiner its token.

package bubble

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/membership"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/daemon"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

// TestEmptiedMember: a voter starts again under its own identity on an empty
// disk. It has forgotten how it voted and what it acknowledged, so it must take
// no part any more; it ends and says what to do, and the others go on.
func TestEmptiedMember(t *testing.T) {
	db := pgtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		f := New(t, db, 3, 21)
		leader := f.leader()
		gone := f.except(leader)[0]
		gone.Kill()
		require.NoError(t, gone.wait())
		require.NoError(t, os.RemoveAll(gone.dir))

		require.NoError(t, gone.Start(daemon.Start{}))
		emptied, begun, reason := gone.Coordination(), time.Now(), ""
		f.Await("the emptied member ends or takes part", func() bool {
			reason = gone.Ended()
			return reason != "" || emptied.View().Initialised()
		})
		require.False(t, emptied.View().Initialised(), "it took part %s after its start", time.Since(begun))
		require.True(t, strings.Contains(reason, "FY-JOIN-004"), reason)
		f.ActiveAbove(role, 0, f.except(gone)...)
	})
}

// TestJoinerForgetsItsToken: a new node is killed between its admission and its
// first entry, and started again without the token. It is let in all the same.
func TestJoinerForgetsItsToken(t *testing.T) {
	db := pgtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		f := New(t, db, 1, 22)
		first := f.Nodes[0]
		n := f.newNode(1, "node-b")
		stranger := f.stranger(n.ID, n.cluster.String(), n.id)
		f.Nodes = append(f.Nodes, n)
		var added membership.Added
		first.Call(http.MethodPost, "/v1/cluster/add", membership.AddRequest{Node: n.ID, Name: n.Name}, &added)
		require.NoError(t, stranger.Redeem(t.Context(), membership.Token(added.Token)))

		require.NoError(t, n.Start(daemon.Start{}))
		first.Await("the joiner is active", func(s healthStatus) bool {
			i := slices.IndexFunc(s.Members, func(m health.MemberRow) bool { return m.Node == n.ID })
			return i >= 0 && s.Members[i].State == fsm.Active
		})
	})
}
