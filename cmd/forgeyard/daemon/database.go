// The daemon's way to PostgreSQL: tried briefly at the start, then for as long as it takes.

package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/roles/scheduler"
	"github.com/forgeyard/forgeyard/roles/store"
)

// firstTry bounds how long the start waits for PostgreSQL, retryEvery the pause
// between later tries and laterTry each of them: a server that accepts
// connections and then says nothing must not hold up the tries after it.
const (
	firstTry   = 2 * time.Second
	retryEvery = time.Second
	laterTry   = time.Minute
)

// openDatabase opens the pools and brings the schema up. A server that is down
// is tried again in the background; a database that is not ours ends the daemon.
func (d *Daemon) openDatabase(ctx context.Context) error {
	var dsn [3]string
	for i, ref := range []interface{ Read() (string, error) }{d.cfg.Postgres.Owner, d.cfg.Postgres.App, d.cfg.Postgres.Direct} {
		var err error
		if dsn[i], err = ref.Read(); err != nil {
			return err
		}
	}
	var err error
	d.store, err = store.Open(ctx, store.Config{
		Owner: dsn[0], App: dsn[1], Direct: dsn[2],
		Cluster: d.self.Cluster, Name: d.self.Name, Logger: d.log, Now: d.out.Now, Observe: d.figures.fenced,
		Warm: scheduler.Statements(), Dial: d.out.Postgres,
	})
	if err != nil {
		return err
	}
	d.onStop("the database", func(context.Context) error { d.store.Close(); return nil })
	try, cancel := context.WithTimeout(ctx, firstTry)
	defer cancel()
	if err := d.migrate(try); err == nil {
		return nil
	} else if final(err) {
		return err
	}
	d.background("database", d.migrateLater)
	return nil
}

func (d *Daemon) migrate(ctx context.Context) error {
	if d.cfg.Postgres.Owner.IsZero() {
		return nil // somebody else migrates; the pools check the schema's owner at every connect
	}
	err := d.store.Migrate(ctx)
	if err != nil && !final(err) {
		d.log.Warn("PostgreSQL is not ready; roles stay off until it is", "error", err)
	}
	return err
}

// migrateLater tries until it succeeds, ctx ends, or trying is pointless.
func (d *Daemon) migrateLater(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryEvery):
		}
		try, cancel := context.WithTimeout(ctx, laterTry)
		err := d.migrate(try)
		cancel()
		if err == nil || final(err) {
			return err
		}
	}
}

// final reports whether an error of the database will not go away by waiting.
func final(err error) bool {
	for _, never := range []*cluster.Error{store.ErrOtherCluster, store.ErrNewerSchema} {
		if errors.Is(err, never) {
			return true
		}
	}
	return false
}
