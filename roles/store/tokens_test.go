// Join tokens and audit records in a real database.

package store

import (
	"crypto/sha256"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

func TestTokens(t *testing.T) {
	db := pgtest.New(t)
	s := open(t, db)
	tokens, ctx := s.Tokens(), t.Context()
	node, other := cluster.NewNodeID(), cluster.NewNodeID()
	cert, cert2 := sha256.Sum256([]byte("cert")), sha256.Sum256([]byte("cert2"))
	create := func(name string, ttl time.Duration) [32]byte {
		h := sha256.Sum256([]byte(name))
		require.NoError(t, tokens.CreateToken(ctx, h, s.cfg.Cluster, node, ttl, "admin"))
		return h
	}
	a := create("a", time.Minute)
	require.Error(t, tokens.CreateToken(ctx, a, s.cfg.Cluster, node, time.Minute, "admin"), "a token is made once")
	unknown := sha256.Sum256([]byte("unknown"))
	require.ErrorIs(t, tokens.RedeemToken(ctx, unknown, s.cfg.Cluster, node, cert), ErrTokenUnknown)
	require.ErrorIs(t, tokens.RedeemToken(ctx, a, s.cfg.Cluster, other, cert), ErrTokenNode)
	require.ErrorIs(t, tokens.RedeemToken(ctx, a, cluster.NewClusterID(), node, cert), ErrTokenNode)
	require.NoError(t, tokens.RedeemToken(ctx, a, s.cfg.Cluster, node, cert))
	require.NoError(t, tokens.RedeemToken(ctx, a, s.cfg.Cluster, node, cert), "the same certificate may repeat it")
	err := tokens.RedeemToken(ctx, a, s.cfg.Cluster, node, cert2)
	require.ErrorIs(t, err, ErrTokenUsed)
	require.Equal(t, cluster.JoinRejected, cluster.KindOf(err))

	b, c := create("b", time.Minute), create("c", time.Minute)
	require.NoError(t, tokens.RedeemToken(ctx, c, s.cfg.Cluster, node, cert))
	require.NoError(t, db.ShiftClock(ctx, 2*time.Minute))
	require.ErrorIs(t, tokens.RedeemToken(ctx, b, s.cfg.Cluster, node, cert), ErrTokenExpired)
	require.NoError(t, tokens.RedeemToken(ctx, c, s.cfg.Cluster, node, cert), "expiry does not undo a redemption")
}

// Of many nodes that present one token at once, one wins.
func TestTokenIsSingleUse(t *testing.T) {
	s := open(t, pgtest.New(t))
	h, node := sha256.Sum256([]byte("x")), cluster.NewNodeID()
	require.NoError(t, s.Tokens().CreateToken(t.Context(), h, s.cfg.Cluster, node, time.Minute, "admin"))
	var group sync.WaitGroup
	var won atomic.Int32
	for i := range 16 {
		group.Go(func() {
			if s.Tokens().RedeemToken(t.Context(), h, s.cfg.Cluster, node, sha256.Sum256([]byte{byte(i)})) == nil {
				won.Add(1)
			}
		})
	}
	group.Wait()
	require.EqualValues(t, 1, won.Load())
}

func TestAudit(t *testing.T) {
	db := pgtest.New(t)
	s := open(t, db)
	r := cluster.AuditRecord{Actor: "admin", Action: "add", Target: "node-b", Outcome: "accepted", Detail: "learner", Node: cluster.NewNodeID(), Epoch: 7}
	require.NoError(t, s.Audit().Record(t.Context(), r))
	require.Equal(t, "admin add node-b accepted learner "+r.Node.String()+" 7",
		one[string](t, db, "SELECT concat_ws(' ', actor, action, target, outcome, detail, node, epoch) FROM coordination.audit"))
	for _, sql := range []string{"UPDATE coordination.audit SET actor = 'x'", "DELETE FROM coordination.audit", "TRUNCATE coordination.audit"} {
		_, err := s.Exec(t.Context(), sql)
		require.Equal(t, "42501", state(err), sql)
	}
}

// TestAuditOfAnyText: no text of a caller keeps his act out of the record.
func TestAuditOfAnyText(t *testing.T) {
	db := pgtest.New(t)
	s := open(t, db)
	for sent, kept := range map[string]string{
		"node-\x00": "node-\uFFFD", "\xff\xfe": "\uFFFD", "": "",
		strings.Repeat("a", 1024): strings.Repeat("a", 1024), strings.Repeat("a", 5000): strings.Repeat("a", 1021) + "…",
		strings.Repeat("\u00e9", 5000): strings.Repeat("\u00e9", 510) + "…", strings.Repeat("a", 1025): strings.Repeat("a", 1021) + "…",
	} {
		r := cluster.AuditRecord{Actor: "admin", Action: "promote", Target: sent, Outcome: "refused", Detail: sent, Node: cluster.NewNodeID(), Epoch: 7}
		require.NoError(t, s.Audit().Record(t.Context(), r), "%.20q", sent)
		require.Equal(t, kept+"|"+kept, one[string](t, db, "SELECT target || '|' || detail FROM coordination.audit ORDER BY seq DESC LIMIT 1"))
	}
}
