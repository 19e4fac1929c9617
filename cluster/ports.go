// Small interfaces whose SQL lives in roles/store.

package cluster

import (
	"context"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
)

// TokenStore keeps join tokens in PostgreSQL: only their SHA-256, never the token (§61).
type TokenStore interface {
	// CreateToken stores a token's hash for one node id until expiry.
	CreateToken(ctx context.Context, hash [32]byte, cluster fsm.ClusterID, node fsm.NodeID, ttl time.Duration, by string) error
	// RedeemToken marks a token used by a certificate. Redeeming again with the
	// same certificate succeeds; JoinRejected otherwise (unknown, expired, used, other node).
	RedeemToken(ctx context.Context, hash [32]byte, cluster fsm.ClusterID, node fsm.NodeID, certificate [32]byte) error
}

// AuditRecord is one administrative act, accepted or refused (§227).
type AuditRecord struct {
	Actor, Action, Target, Outcome, Detail string
	Node                                   fsm.NodeID
	Epoch                                  fsm.Epoch
}

// Audit writes audit records to PostgreSQL (§133). Each text is cut after 1024 bytes.
type Audit interface {
	Record(ctx context.Context, r AuditRecord) error
}
