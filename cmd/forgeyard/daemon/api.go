// The HTTP side: the routes of every package, and what makes this daemon ready.

package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/membership"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/server"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/store"
)

// readyGrace is how long PostgreSQL may be away before a ready daemon becomes unready.
const readyGrace = 5 * time.Second

func (d *Daemon) serveAPI(context.Context) (err error) {
	routes := append([]access.Route{}, runner.Routes(d.store, d.scheduler.Wake)...)
	routes = append(routes, health.Routes(d.observer)...)
	routes = append(routes, actors.Routes(d.system)...)
	if d.members != nil {
		routes = append(routes, membership.Routes(d.members)...)
	}
	d.checks = server.NewChecks(d.out.Now,
		server.Check{Name: "view", Ask: d.hasView},
		server.Check{Name: "postgresql", Ask: d.hasDatabase},
	)
	d.api, err = server.New(server.Config{
		Listen: d.out.API, Admin: d.out.Admin, Routes: routes, Private: d.crashRoutes(), Ready: d.checks, Version: d.out.Version,
		MaxBody: int64(d.cfg.Cluster.Limits.Body), Logger: d.log, Now: d.out.Now,
	})
	if err != nil {
		return err
	}
	d.api.Start()
	d.onStop(d.api.Close)
	d.background("API", func(ctx context.Context) error {
		select {
		case err := <-d.api.Failed():
			return err
		case <-ctx.Done():
			return nil
		}
	})
	return nil
}

var errNoView = errors.New("no committed view has arrived yet")

func (d *Daemon) hasView(context.Context) error {
	if !d.backend.View().Initialised() {
		return errNoView
	}
	return nil
}

// hasDatabase forgives a short outage: a blip must not take the whole fleet out
// of a load balancer. A daemon that never reached PostgreSQL is not ready.
func (d *Daemon) hasDatabase(context.Context) error {
	ok, since := d.store.Writable()
	if ok {
		d.reached.Store(true)
		return nil
	}
	if since > readyGrace || !d.reached.Load() {
		return store.ErrUnavailable
	}
	return nil
}
