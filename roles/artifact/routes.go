// The HTTP routes of collection: what the last one found, and starting one.

package artifact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// Collection is the answer of GET and POST /v1/gc.
type Collection struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Node       string    `json:"node,omitempty"`    // which made it
	Finished   time.Time `json:"finished,omitzero"` // by the database's clock; zero for a dry run
	Last       *Report   `json:"last,omitempty"`    // the last one of the fleet that ended; absent when there was none

	Retention *Retention `json:"retention,omitempty"` // only GET tells it
}

// Retention is what left the database because it ended long ago. Blobs that
// these rows named are garbage then.
type Retention struct {
	Removed map[string]int64 `json:"removed"`             // rows so far, by table
	Passed  *time.Time       `json:"passed_at,omitempty"` // when nothing more was left to remove, by the database's clock
}

// CollectRequest is the body of POST /v1/gc.
type CollectRequest struct {
	DryRun bool `json:"dry_run"`
}

// Routes are GET /v1/gc, which any daemon answers for the fleet, and POST
// /v1/gc, which collects on this daemon and answers when it is done.
func (c *Collector) Routes() []access.Route {
	return []access.Route{
		{Method: http.MethodGet, Pattern: "/v1/gc", Permission: access.ClusterRead, Handler: http.HandlerFunc(c.serveLast)},
		{Method: http.MethodPost, Pattern: "/v1/gc", Permission: access.ClusterManage, Stream: true, Handler: http.HandlerFunc(c.serveCollect)},
	}
}

func (c *Collector) serveLast(w http.ResponseWriter, r *http.Request) {
	d, err := c.Last(r.Context())
	if err != nil {
		access.WriteError(w, err)
		return
	}
	access.WriteJSON(w, http.StatusOK, d)
}

// Last is the last collection of the fleet that ended and was no dry run, and
// what retention has done so far.
func (c *Collector) Last(ctx context.Context) (Collection, error) {
	d := Collection{APIVersion: "forgeyard.dev/v1", Kind: "Collection"}
	var report []byte
	var kept Retention
	err := c.cfg.DB.Batch(ctx, func(b *pgx.Batch) {
		b.Queue(`SELECT at, node, report FROM forge.collections ORDER BY at DESC LIMIT 1`).QueryRow(func(row pgx.Row) error {
			err := row.Scan(&d.Finished, &d.Node, &report)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		})
		b.Queue(`SELECT removed, passed_at FROM forge.retention`).QueryRow(func(row pgx.Row) error { return row.Scan(&kept.Removed, &kept.Passed) })
	})
	d.Retention = &kept
	if err == nil && report != nil {
		err = json.Unmarshal(report, &d.Last)
	}
	if err != nil {
		return Collection{}, fmt.Errorf("read the last collection: %w", err)
	}
	return d, nil
}

func (c *Collector) serveCollect(w http.ResponseWriter, r *http.Request) {
	var in CollectRequest
	if r.ContentLength != 0 {
		if err := access.ReadJSON(w, r, &in); err != nil {
			access.WriteError(w, err)
			return
		}
	}
	report, err := c.Collect(r.Context(), in.DryRun)
	if err != nil {
		access.WriteError(w, err)
		return
	}
	access.WriteJSON(w, http.StatusOK, Collection{APIVersion: "forgeyard.dev/v1", Kind: "Collection", Node: c.cfg.Node, Last: &report})
}

// note writes a finished collection down for every daemon to show.
func (c *Collector) note(ctx context.Context, r Report) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	err = c.cfg.DB.Batch(ctx, func(b *pgx.Batch) {
		b.Queue(`INSERT INTO forge.collections (node, report) VALUES ($1, $2) ON CONFLICT DO NOTHING`, c.cfg.Node, text)
	})
	if err != nil {
		return fmt.Errorf("write the report down: %w", err)
	}
	return nil
}
