// The highest epochs that the database holds, to compare with the committed ones (§243).

package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/fsm"
)

// Stamp is the (generation, epoch) of a fence or of a row; the generation is compared first.
type Stamp struct {
	Generation fsm.Generation
	Epoch      fsm.Epoch
}

// Above reports whether s is later than o.
func (s Stamp) Above(o Stamp) bool {
	return s.Generation > o.Generation || s.Generation == o.Generation && s.Epoch > o.Epoch
}

// Stored is what the database holds of one role; the zero Stamp means nothing.
type Stored struct {
	Fence Stamp // where the role's fence stands
	Rows  Stamp // the highest stamp of the rows that are in use: tick, active leases, open dispatches
}

// Highest is the later of the two.
func (s Stored) Highest() Stamp {
	if s.Rows.Above(s.Fence) {
		return s.Rows
	}
	return s.Fence
}

// epochsSQL reads one row a role, the tick, and what partial indexes hold:
// active leases and open dispatches, which the fleet's slots bound. Ended rows
// are not read, for they cannot be above: a row takes its stamp from a fence
// that was equal while the row was written, and a fence only rises.
const epochsSQL = `
SELECT role, generation, epoch, true AS fence FROM coordination.fence
UNION ALL (SELECT 1, generation, epoch, false FROM forge.leases WHERE state = 'active' ORDER BY generation DESC, epoch DESC LIMIT 1)
UNION ALL (SELECT 1, generation, epoch, false FROM forge.dispatch WHERE state = 'open' ORDER BY generation DESC, epoch DESC LIMIT 1)
UNION ALL SELECT 1, generation, epoch, false FROM forge.tick WHERE epoch > 0`

// HighestEpochs returns, for each role of which the database holds anything,
// the highest (generation, epoch) of its fence and of its rows. Its cost follows
// the work in progress, not the size of the tables.
func (s *Store) HighestEpochs(ctx context.Context) (map[fsm.Role]Stored, error) {
	rows, err := s.Query(ctx, epochsSQL)
	if err != nil {
		return nil, fmt.Errorf("read the stored epochs: %w", err)
	}
	stored := map[fsm.Role]Stored{}
	var role fsm.Role
	var at Stamp
	var fence bool
	_, err = pgx.ForEachRow(rows, []any{&role, &at.Generation, &at.Epoch, &fence}, func() error {
		known := stored[role]
		switch {
		case fence:
			known.Fence = at
		case at.Above(known.Rows):
			known.Rows = at
		}
		stored[role] = known
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the stored epochs: %w", err)
	}
	return stored, nil
}
