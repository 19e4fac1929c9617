// Garbage collection: blobs that no row has named for a grace period are deleted.

package artifact

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

// Grace periods of collection. A Put protects for Fresh, so twice that is the
// least that leaves room for what is just being referenced.
const (
	DefaultGrace = 24 * time.Hour
	MinGrace     = 2 * Fresh
)

// CollectorConfig is what a Collector works with.
type CollectorConfig struct {
	Store Store
	DB    Database
	Node  string        // this daemon, as its reports name it
	Begin Begin         // takes the scope that makes this the only collection
	Grace time.Duration // 0 = DefaultGrace; at least MinGrace
	Every time.Duration // between the runs of Loop; 0 = 6 h

	Logger *slog.Logger // nil = discard
}

// Report is what one collection found and did.
type Report struct {
	DryRun    bool      `json:"dry_run"`
	At        time.Time `json:"at"`        // when it began, by the store's clock
	Blobs     int64     `json:"blobs"`     // stored
	Bytes     int64     `json:"bytes"`     // stored
	Garbage   int64     `json:"garbage"`   // blobs that no row names and that are older than the grace period
	Deleted   int64     `json:"deleted"`   // of these
	Reclaimed int64     `json:"reclaimed"` // bytes of the deleted; of the garbage in a dry run
	Leftovers int       `json:"leftovers"` // of interrupted calls, cleared away
}

// Collector collects garbage. It is safe for concurrent use; its runs exclude
// each other in the whole fleet, and each is written down for every daemon to show.
type Collector struct {
	cfg CollectorConfig
}

// NewCollector checks the configuration.
func NewCollector(cfg CollectorConfig) (*Collector, error) {
	if cfg.Grace == 0 {
		cfg.Grace = DefaultGrace
	}
	if cfg.Grace < MinGrace {
		return nil, fmt.Errorf("collector: a grace period of %s is below %s and could lose what is just being stored", cfg.Grace, MinGrace)
	}
	if cfg.Every == 0 {
		cfg.Every = 6 * time.Hour
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Collector{cfg: cfg}, nil
}

// Loop collects now and then until ctx ends. That another process holds the
// scope is normal: one collection is enough for the fleet.
func (c *Collector) Loop(ctx context.Context) {
	t := time.NewTicker(c.cfg.Every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		r, err := c.Collect(ctx, false)
		switch {
		case err == nil:
			c.cfg.Logger.Info("collected garbage", "blobs", r.Blobs, "deleted", r.Deleted, "reclaimed", r.Reclaimed)
		case ctx.Err() == nil && !heldElsewhere(err):
			c.cfg.Logger.Warn("garbage was not collected", "error", err)
		}
	}
}

// Collect runs one collection under the exclusive scope; a dry run deletes
// nothing. It fails with exclusive.ErrHeld while another runs, with FENCED when
// the scope is lost, and with the errors of the store and the database; what it
// deleted until then is in the report.
func (c *Collector) Collect(ctx context.Context, dryRun bool) (r Report, err error) {
	scope, err := c.cfg.Begin(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("collect garbage: %w", err)
	}
	defer func() {
		// The scope is freed also when ctx has ended: nobody else could collect until this process ends.
		free, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if failed := scope.Complete(free); failed != nil {
			err = errors.Join(err, fmt.Errorf("free the collection's scope: %w", failed))
		}
	}()
	run := &collection{cfg: c.cfg, scope: scope, report: Report{DryRun: dryRun}}
	if err := run.run(ctx); err != nil {
		return run.report, fmt.Errorf("collect garbage: %w", err)
	}
	if !dryRun {
		err = c.note(ctx, run.report)
	}
	return run.report, err
}

// sizes of the steps of a collection.
const (
	markPage  = 5000 // references read at a time
	sweepPage = 2000 // garbage checked again and deleted at a time
)

// collection is one run.
type collection struct {
	cfg    CollectorConfig
	scope  Scope
	named  references
	cutoff time.Time // what is newer stays
	report Report
	batch  []Blob // garbage, to be checked again
}

func (c *collection) run(ctx context.Context) error {
	now, err := c.cfg.Store.Now(ctx)
	if err != nil {
		return err
	}
	c.report.At, c.cutoff = now, now.Add(-c.cfg.Grace)
	if err := c.mark(ctx); err != nil {
		return err
	}
	err = c.cfg.Store.List(ctx, Digest{}, func(b Blob) error {
		c.report.Blobs++
		c.report.Bytes += b.Size
		if b.Modified.After(c.cutoff) || c.named.has(b.Digest) {
			return nil
		}
		c.batch = append(c.batch, b)
		if len(c.batch) < sweepPage {
			return nil
		}
		return c.sweep(ctx)
	})
	if err == nil {
		err = c.sweep(ctx)
	}
	if err != nil || c.report.DryRun {
		return err
	}
	if err := c.scope.Check(); err != nil {
		return err
	}
	c.report.Leftovers, err = c.cfg.Store.Tidy(ctx, c.cutoff)
	return err
}

// mark reads which blobs are named. A reference that is made behind the page
// just read is missed, and harmless: what it names was put within Fresh of it,
// and is too young to be swept.
func (c *collection) mark(ctx context.Context) error {
	for _, sql := range markSQL {
		var a, b string
		for more := true; more; {
			if err := c.scope.Check(); err != nil {
				return err
			}
			page := 0
			err := c.cfg.DB.Batch(ctx, func(q *pgx.Batch) {
				q.Queue(sql, a, b, markPage).Query(func(rows pgx.Rows) error {
					for rows.Next() {
						var digest []byte
						if err := rows.Scan(&a, &b, &digest); err != nil {
							return err
						}
						c.named.add(Digest(digest))
						page++
					}
					return rows.Err()
				})
			})
			if err != nil {
				return err
			}
			more = page == markPage
		}
	}
	c.named.seal()
	return nil
}

// sweep checks the batch against the rows of this moment and deletes what is
// still garbage. Delete itself looks at the age once more.
func (c *collection) sweep(ctx context.Context) error {
	batch := c.batch
	c.batch = c.batch[:0]
	garbage, err := c.unreferenced(ctx, batch)
	if err != nil {
		return err
	}
	for _, b := range batch {
		if !garbage[b.Digest] {
			continue
		}
		c.report.Garbage++
		if c.report.DryRun {
			c.report.Reclaimed += b.Size
			continue
		}
		if err := c.scope.Check(); err != nil {
			return err
		}
		gone, err := c.cfg.Store.Delete(ctx, b.Digest, c.cutoff)
		if err != nil {
			return err
		}
		if gone {
			c.report.Deleted++
			c.report.Reclaimed += b.Size
		}
	}
	return nil
}

func (c *collection) unreferenced(ctx context.Context, batch []Blob) (map[Digest]bool, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	digests := make([][]byte, len(batch))
	for i := range batch {
		digests[i] = batch[i].Digest.Bytes()
	}
	garbage := map[Digest]bool{}
	err := c.cfg.DB.Batch(ctx, func(q *pgx.Batch) {
		q.Queue(unreferencedSQL, digests).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var digest []byte
				if err := rows.Scan(&digest); err != nil {
					return err
				}
				garbage[Digest(digest)] = true
			}
			return rows.Err()
		})
	})
	return garbage, err
}
