// Projector: what the committed view shows, written down as events by the node that leads.

package events

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/cluster"
)

const (
	reloadEvery = 5 * time.Second // covers lost hints of view changes
	seenEvery   = time.Hour       // how often what the view still shows is noted, so that retention keeps it
)

// Views is what the projector needs of the coordination backend.
type Views interface {
	View() cluster.View
	Changes() (hint <-chan struct{}, stop func())
	Leadership() (cluster.Leadership, bool)
}

// Projector writes one event for each fact of the view: a leadership, a role's
// grant or release, a member's state, an exclusive operation, a maintenance
// state. The event's id is made from the fact, so a fact is told once, by
// whichever leader sees it first. Views coalesce: a grant that was replaced
// before any leader looked is not told.
type Projector struct {
	views Views
	db    Database
	bus   *Bus
	log   *slog.Logger
	told  map[string]bool // of the current view, already in the database
	seen  time.Time       // when all of it was last noted as still shown
}

// NewProjector makes a projector; Run it.
func NewProjector(views Views, db Database, bus *Bus, logger *slog.Logger) *Projector {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Projector{views: views, db: db, bus: bus, log: logger, told: map[string]bool{}}
}

// Run projects until ctx ends, while this node leads. It never fails: what
// could not be written is tried again with the next change or in a few seconds.
func (p *Projector) Run(ctx context.Context) error {
	hint, stop := p.views.Changes()
	defer stop()
	t := time.NewTicker(reloadEvery)
	defer t.Stop()
	for {
		if _, leads := p.views.Leadership(); leads {
			if err := p.project(ctx, p.views.View()); err != nil && ctx.Err() == nil {
				p.log.Debug("coordination events wait for PostgreSQL", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-hint:
		case <-t.C:
		}
	}
}

// Both rows or none: an id that is there already has told its event.
const projectSQL = `
WITH fresh AS (
  INSERT INTO coordination.events (id, kind, data)
  SELECT e.id, e.kind, e.data FROM jsonb_to_recordset($1::jsonb) AS e(id text, kind text, data jsonb)
  ON CONFLICT (id) DO NOTHING RETURNING id, kind, data)
INSERT INTO forge.outbox (kind, data) SELECT kind, data FROM fresh ORDER BY id`

// All that the view shows is noted at one moment: the newest seen_at of the
// table is theirs, and no other row's.
const seenSQL = `UPDATE coordination.events SET seen_at = (SELECT coordination.clock()) WHERE id = ANY ($1)`

// fact is one thing that a view shows.
type fact struct {
	ID   string         `json:"id"`
	Kind string         `json:"kind"`
	Data map[string]any `json:"data"`
}

func (p *Projector) project(ctx context.Context, v cluster.View) error {
	current := facts(v)
	var fresh []fact
	told := make(map[string]bool, len(current))
	for _, f := range current {
		told[f.ID] = true
		if !p.told[f.ID] {
			fresh = append(fresh, f)
		}
	}
	due := time.Since(p.seen) >= seenEvery
	if len(fresh) > 0 || due {
		rows, err := json.Marshal(fresh)
		if err != nil {
			return fmt.Errorf("encode events: %w", err)
		}
		err = p.db.Batch(ctx, func(b *pgx.Batch) {
			if len(fresh) > 0 {
				b.Queue(projectSQL, rows)
			}
			if due {
				b.Queue(seenSQL, slices.Collect(maps.Keys(told)))
			}
		})
		if err != nil {
			return fmt.Errorf("project the view: %w", err)
		}
		if len(fresh) > 0 {
			p.bus.Notify(Happens)
		}
		if due {
			p.seen = time.Now()
		}
	}
	p.told = told
	return nil
}

// facts lists what a view shows, each under an id that no other fact can have.
func facts(v cluster.View) []fact {
	if !v.Initialised() {
		return nil
	}
	generation := v.Generation
	out := []fact{{
		ID: fmt.Sprintf("leader/%d/%d", generation, v.LeaderEpoch.Epoch), Kind: "cluster.leader",
		Data: map[string]any{"node": v.Leader, "term": v.LeaderEpoch.Term, "epoch": v.LeaderEpoch.Epoch, "generation": generation},
	}}
	for _, g := range v.Roles {
		if g.Vacant() {
			continue
		}
		out = append(out, fact{
			ID: fmt.Sprintf("grant/%d/%d", generation, g.Epoch), Kind: "role.granted",
			Data: map[string]any{"role": g.Role.String(), "epoch": g.Epoch, "node": g.Owner, "incarnation": g.Incarnation, "generation": generation},
		})
	}
	for _, r := range v.Releases {
		out = append(out, fact{
			ID: fmt.Sprintf("release/%d/%d", generation, r.Epoch), Kind: "role.released",
			Data: map[string]any{"role": r.Role.String(), "epoch": r.Epoch, "node": r.Node, "code": r.Code, "reason": r.Reason, "generation": generation},
		})
	}
	for _, m := range v.Members {
		out = append(out, fact{
			ID: fmt.Sprintf("member/%d/%s/%s/%s/%s", generation, m.Node, m.Incarnation, m.Role, m.State), Kind: "member.changed",
			Data: map[string]any{"node": m.Node, "name": m.Name, "incarnation": m.Incarnation, "role": m.Role.String(), "state": m.State.String(), "build": m.Build},
		})
	}
	for _, x := range v.Exclusive {
		out = append(out, fact{
			ID: fmt.Sprintf("exclusive/%d/%d", generation, x.Epoch), Kind: "exclusive.begun",
			Data: map[string]any{"scope": x.Scope.String(), "epoch": x.Epoch, "node": x.Owner, "generation": generation},
		})
	}
	if v.MaintenanceEpoch > 0 {
		out = append(out, fact{
			ID: fmt.Sprintf("maintenance/%d/%d", generation, v.MaintenanceEpoch), Kind: "cluster.maintenance",
			Data: map[string]any{"state": v.Maintenance.String(), "epoch": v.MaintenanceEpoch, "generation": generation},
		})
	}
	return out
}
