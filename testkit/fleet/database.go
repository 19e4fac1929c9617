// The fleet's PostgreSQL: started with the fleet, and stopped and started again as a fault.

package fleet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/forgeyard/forgeyard/testkit/postgres"
)

// database is the name of the fleet's database.
const database = "forgeyard"

// The name that clients of PostgreSQL give a socket of this port.
const (
	socketPort = 5432
	socketName = ".s.PGSQL.5432"
)

// Postgres is the server that runs, or ran last.
func (f *Fleet) Postgres() *postgres.Server {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pg
}

// StartPostgres starts the server over the fleet's one data directory: the same
// database at the same address as before. It must not run already.
func (f *Fleet) StartPostgres(ctx context.Context) error {
	srv, err := postgres.Start(ctx, postgres.Options{
		Dir: f.path("pg"), Fsync: f.opts.Fsync, LogFile: f.path("postgres.log"),
	})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pg = srv
	return nil
}

// StopPostgres ends the server; all sessions are cut off. Stopping twice is harmless.
func (f *Fleet) StopPostgres(ctx context.Context) error {
	if srv := f.Postgres(); srv != nil {
		return srv.Stop(ctx)
	}
	return nil
}

// PausePostgres stops the server and all its sessions with SIGSTOP; nothing is
// closed, nobody is answered.
func (f *Fleet) PausePostgres() error {
	srv := f.Postgres()
	// A session may have been started while the first signals were sent.
	return errors.Join(srv.Pause(), srv.Pause())
}

// ResumePostgres wakes a paused server.
func (f *Fleet) ResumePostgres() error { return f.Postgres().Resume() }

// KillPostgres ends the server with kill -9, as a crash of it would. Only a
// server with Options.Fsync keeps what it acknowledged. It returns once the
// server's own processes are gone, so that it can be started again.
func (f *Fleet) KillPostgres(ctx context.Context) error {
	srv := f.Postgres()
	backends, err := srv.Backends()
	if err != nil {
		return err
	}
	if err := srv.Kill(); err != nil {
		return err
	}
	for _, pid := range backends {
		for alive(pid) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("process %d of the killed PostgreSQL lives on: %w", pid, ctx.Err())
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	return nil
}

// alive reports whether a process runs: it exists and does not merely wait to be reaped.
func alive(pid int) bool {
	state, err := procState(pid)
	return err == nil && state != 'Z'
}

func (f *Fleet) startPostgres(ctx context.Context) error {
	if err := f.StartPostgres(ctx); err != nil {
		return err
	}
	if err := f.Postgres().Bootstrap(ctx, database); err != nil {
		return fmt.Errorf("prepare the database: %w", err)
	}
	f.progress("postgres", "ready", f.Postgres().Host())
	return nil
}

// DSN names the fleet's database for a user, past every proxy.
func (f *Fleet) DSN(user string) string { return f.Postgres().DSN(user, database) }

// DSN names the fleet's database for a user by the daemon's own way to it, which can be cut.
func (n *Node) DSN(user string) string {
	if n.space != nil {
		return fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d&sslmode=disable", user, database, n.dir, socketPort)
	}
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", user, n.proxy.Addr().Port, database)
}

// socket is PostgreSQL's unix socket.
func (f *Fleet) socket() string {
	srv := f.Postgres()
	return filepath.Join(srv.Host(), fmt.Sprintf(".s.PGSQL.%d", srv.Port()))
}
