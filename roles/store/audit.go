// Audit records in PostgreSQL (§133): append-only, the app role can neither change nor remove them.

package store

import (
	"context"
	"fmt"

	"github.com/forgeyard/forgeyard/cluster"
)

type audit struct{ s *Store }

// Audit returns the writer of audit records.
func (s *Store) Audit() cluster.Audit { return audit{s} }

// Record appends one record under the database's clock.
func (a audit) Record(ctx context.Context, r cluster.AuditRecord) error {
	_, err := a.s.Exec(ctx, `INSERT INTO coordination.audit (at, actor, action, target, outcome, detail, node, epoch)
		VALUES (coordination.clock(), $1, $2, $3, $4, $5, $6, $7)`,
		r.Actor, r.Action, r.Target, r.Outcome, r.Detail, r.Node.String(), int64(r.Epoch))
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}
