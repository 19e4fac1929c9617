// Join tokens in PostgreSQL (§61).

package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// Why a token is refused. All are JoinRejected: final for that token.
var (
	ErrTokenUnknown = &cluster.Error{Kind: cluster.JoinRejected, Code: "FY-JOIN-101", Message: "the join token is unknown", Hint: "make one with `forgeyard cluster add`"}
	ErrTokenExpired = &cluster.Error{Kind: cluster.JoinRejected, Code: "FY-JOIN-102", Message: "the join token has expired", Hint: "make another one with `forgeyard cluster add`"}
	ErrTokenUsed    = &cluster.Error{Kind: cluster.JoinRejected, Code: "FY-JOIN-103", Message: "the join token was used with another certificate", Hint: "make another one with `forgeyard cluster add`"}
	ErrTokenNode    = &cluster.Error{Kind: cluster.JoinRejected, Code: "FY-JOIN-104", Message: "the join token is for another node or cluster", Hint: "use the token that was made for this node's id"}
)

type tokens struct{ s *Store }

// Tokens returns the store of join tokens.
func (s *Store) Tokens() cluster.TokenStore { return tokens{s} }

// CreateToken stores a token's hash; it expires after ttl of the database's clock.
func (t tokens) CreateToken(ctx context.Context, hash [32]byte, c fsm.ClusterID, node fsm.NodeID, ttl time.Duration, by string) error {
	_, err := t.s.Exec(ctx, `INSERT INTO coordination.join_tokens (hash, cluster_id, node_id, created_by, created_at, expires_at)
		VALUES ($1, $2, $3, $4, coordination.clock(), coordination.clock() + $5 * interval '1 microsecond')`,
		hash[:], c.String(), node.String(), by, ttl.Microseconds())
	if err != nil {
		return fmt.Errorf("create join token: %w", err)
	}
	return nil
}

// RedeemToken marks the token used by a certificate, in one statement, so that
// of two nodes with the same token one wins. The winner may repeat it.
func (t tokens) RedeemToken(ctx context.Context, hash [32]byte, c fsm.ClusterID, node fsm.NodeID, certificate [32]byte) error {
	tag, err := t.s.Exec(ctx, `UPDATE coordination.join_tokens
		   SET redeemed_at = coalesce(redeemed_at, coordination.clock()), certificate = $4
		 WHERE hash = $1 AND cluster_id = $2 AND node_id = $3
		   AND (certificate = $4 OR certificate IS NULL AND expires_at > coordination.clock())`,
		hash[:], c.String(), node.String(), certificate[:])
	if err != nil {
		return fmt.Errorf("redeem join token: %w", err)
	}
	if tag.RowsAffected() == 1 {
		return nil
	}
	return t.refusal(ctx, hash, c, node)
}

// refusal finds out why no row matched.
func (t tokens) refusal(ctx context.Context, hash [32]byte, c fsm.ClusterID, node fsm.NodeID) error {
	var ours, used bool
	err := t.s.QueryRow(ctx, `SELECT cluster_id = $2 AND node_id = $3, certificate IS NOT NULL FROM coordination.join_tokens WHERE hash = $1`,
		hash[:], c.String(), node.String()).Scan(&ours, &used)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ErrTokenUnknown
	case err != nil:
		return fmt.Errorf("redeem join token: %w", err)
	case !ours:
		return ErrTokenNode
	case used:
		return ErrTokenUsed
	}
	return ErrTokenExpired
}
