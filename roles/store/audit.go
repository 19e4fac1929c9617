// Audit records in PostgreSQL (§133): append-only, the app role can neither change nor remove them.

package store

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/forgeyard/forgeyard/cluster"
)

type audit struct{ s *Store }

// Audit returns the writer of audit records.
func (s *Store) Audit() cluster.Audit { return audit{s} }

// maxAuditText bounds each text of a record, in bytes; what is longer is cut.
const maxAuditText = 1024

// auditable makes any text one that PostgreSQL stores. Targets and details are
// as a caller sent them: none of his spellings may keep his act out of the record.
// One that was cut ends with "…".
func auditable(s string) string {
	const cut = "…"
	text := Text(s, maxAuditText+utf8.UTFMax)
	if len(text) <= maxAuditText {
		return text
	}
	return Text(text, maxAuditText-len(cut)) + cut
}

// Record appends one record under the database's clock.
func (a audit) Record(ctx context.Context, r cluster.AuditRecord) error {
	_, err := a.s.Exec(ctx, `INSERT INTO coordination.audit (at, actor, action, target, outcome, detail, node, epoch)
		VALUES (coordination.clock(), $1, $2, $3, $4, $5, $6, $7)`,
		auditable(r.Actor), auditable(r.Action), auditable(r.Target), auditable(r.Outcome), auditable(r.Detail), r.Node.String(), int64(r.Epoch))
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}
