// Bytes: the content store, and what moves bytes between it, agents and clients.

package daemon

import (
	"context"
	"path/filepath"

	"github.com/forgeyard/forgeyard/cluster/exclusive"
	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/roles/events"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// content is this daemon's way to bytes. Without a content store it is nil:
// jobs run, and of their output the tail is kept.
type content struct {
	store     artifact.Store
	logs      *artifact.Logs
	transfers *runner.Transfers
	collector *artifact.Collector
}

// openContent opens the store that all daemons share. One that cannot be
// reached is tried at each use; coordination goes on without it.
func (d *Daemon) openContent(ctx context.Context) error {
	if d.cfg.CAS.URL == "" {
		return nil
	}
	store, err := artifact.Open(ctx, d.cfg.CAS.URL, d.self.Cluster, artifact.Options{
		Spool: filepath.Join(d.cfg.DataDir, "cache"), Logger: d.log,
	})
	if err != nil {
		return err
	}
	d.onStop("the content store", func(context.Context) error { return store.Close() })
	logs, err := artifact.NewLogs(store, d.store)
	if err != nil {
		return err
	}
	collector, err := artifact.NewCollector(artifact.CollectorConfig{
		Store: store, DB: d.store, Node: d.self.Name, Grace: d.cfg.CAS.Grace, Every: d.cfg.CAS.Every, Logger: d.log,
		Begin: artifact.Exclusively(exclusive.New(d.backend, d.out.Now), d.backend.View),
	})
	if err != nil {
		return err
	}
	d.content = &content{store: store, logs: logs, collector: collector, transfers: runner.NewTransfers(runner.TransfersConfig{
		Store: d.store, Blobs: store, Logs: logs, Logged: func() { d.bus.Notify(events.Logs) }, Logger: d.log,
	})}
	d.background("collection", func(ctx context.Context) error {
		collector.Loop(ctx)
		return nil
	})
	return nil
}

// runsAPI is what the routes of runs, bytes and agents work with.
func (d *Daemon) runsAPI() runner.APIConfig {
	cfg := runner.APIConfig{
		Store: d.store, Notify: d.bus.Notify, Subscribe: d.bus.Subscribe, Audit: d.store.Audit(), Whose: d.signs, Logger: d.log,
	}
	if c := d.content; c != nil {
		cfg.Blobs, cfg.Sources, cfg.Logs = c.store, artifact.Sources{Store: c.store}, c.logs
	}
	return cfg
}
