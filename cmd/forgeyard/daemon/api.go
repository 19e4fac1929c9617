// The HTTP side: the routes of every package, and what makes this daemon ready.

package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/cluster/access/token"
	"github.com/forgeyard/forgeyard/cluster/config"
	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/membership"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/server"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/events"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/scheduler"
	"github.com/forgeyard/forgeyard/roles/store"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// readyGrace is how long PostgreSQL may be away before a ready daemon becomes unready.
const readyGrace = 5 * time.Second

func (d *Daemon) serveAPI(context.Context) (err error) {
	callers, err := d.callers()
	if err != nil {
		return err
	}
	d.checks = server.NewChecks(d.out.Now,
		server.Check{Name: "view", Ask: d.hasView},
		server.Check{Name: "postgresql", Ask: d.hasDatabase},
	)
	shared, private := d.routes()
	d.api, err = server.New(server.Config{
		Listen: d.out.API, Admin: d.out.Admin, Access: callers, Routes: shared, Private: private,
		Ready: d.checks, Version: d.out.Version, Collectors: d.collectors(), MaxBody: int64(d.cfg.Cluster.Limits.Body), Logger: d.log, Now: d.out.Now,
	})
	if err != nil {
		return err
	}
	d.api.Start()
	d.onStop("the API", d.api.Close)
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

// routes is everything that this daemon mounts besides the server's own probes:
// the shared ones on both listeners, the private ones on the administration
// socket alone. The authorisation table is tested against this list.
func (d *Daemon) routes() (shared, private []access.Route) {
	shared = append(shared, runner.NewAPI(d.runsAPI()).Routes()...)
	shared = append(shared, scheduler.Routes(d.store, d)...)
	shared = append(shared, events.Routes(d.hub)...)
	shared = append(shared, health.Routes(d.observer)...)
	shared = append(shared, actors.Routes(d.system)...)
	if d.content != nil {
		shared = append(shared, d.content.collector.Routes()...)
	}
	if d.distributed() {
		shared = append(shared, membership.Routes(d.members)...)
	}
	tokens := token.Granter{
		Cluster: d.self.Cluster, Node: d.self.Node, Epoch: func() fsm.Epoch { return d.backend.View().Epoch },
		Keys: d.tokenKeys, Audit: d.store.Audit(), Now: d.out.Now,
	}
	return shared, append(tokens.Routes(), d.crashRoutes()...)
}

// callers says how callers of the API prove who they are.
func (d *Daemon) callers() (a server.Access, err error) {
	api := d.cfg.API
	a = server.Access{Hosts: api.Hosts, PublicMetrics: api.Metrics == config.Everyone}
	if api.TLS {
		if a.Identity = d.out.Identity; a.Identity == nil {
			return a, pki.ErrFiles
		}
	}
	if len(api.Tokens.Keys) > 0 {
		if d.tokenKeys, err = token.OpenKeys(api.Tokens.Keys, d.out.Now, d.log); err != nil {
			return a, &config.Error{
				Code: config.CodeInvalid, Path: "api.tokens.keys", Err: fmt.Errorf("api.tokens.keys: %w", err),
				Hint: "each is a .pub file of forgeyard token keygen, or a directory of them",
			}
		}
		a.Tokens = token.NewVerifier(d.self.Cluster, d.tokenKeys, d.out.Now)
		d.log.Info("the API accepts tokens", "keys", d.tokenKeys.Count())
	}
	return a, nil
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
