// Package pgtest gives each test a fresh, migrated database on the one PostgreSQL server of the test run.
package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/migrations"
	"github.com/forgeyard/forgeyard/testkit/postgres"
)

// Database is one test's own database. It is dropped, sessions and all, when the test ends.
type Database struct {
	Name   string
	Owner  string // DSN of forgeyard_owner: migrations
	App    string // DSN of forgeyard_app: the pool
	Direct string // DSN of forgeyard_app without a pooler: fence work, LISTEN, locks
	Super  string // DSN of the superuser, for faults that a test injects
	Host   string // directory of the server's socket
	Port   int    // number in the socket's name
}

const setupTimeout = 60 * time.Second

// New returns a migrated database that no cluster has claimed yet.
func New(t testing.TB) *Database { return create(t, true) }

// NewEmpty returns a database without any migration.
func NewEmpty(t testing.TB) *Database { return create(t, false) }

func create(t testing.TB, migrated bool) *Database {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), setupTimeout)
	defer cancel()
	srv, err := shared()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	template := ""
	if migrated {
		if template, err = srv.template(ctx); err != nil {
			t.Fatalf("pgtest: %v", err)
		}
	} else if err := srv.roles(ctx); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	var tag [6]byte
	rand.Read(tag[:])
	d := srv.database("fy_test_" + hex.EncodeToString(tag[:]))
	if err := srv.create(ctx, d.Name, template); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
		defer cancel()
		if err := srv.drop(ctx, d.Name); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return d
}

// Refuse ends the sessions of all but superusers and lets the application begin no other.
func (d *Database) Refuse(t testing.TB) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), d.Super)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	defer c.Close(context.WithoutCancel(t.Context()))
	for _, sql := range []string{
		"REVOKE CONNECT ON DATABASE " + pgx.Identifier{d.Name}.Sanitize() + " FROM PUBLIC, " + migrations.AppRole,
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity JOIN pg_roles ON rolname = usename WHERE datname = current_database() AND NOT rolsuper",
	} {
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatalf("pgtest: %v", err)
		}
	}
}

// server is where the databases of this run live.
type server struct {
	host string
	port int
	own  *postgres.Server // kept reachable: were it collected, its watcher would end the server
}

func (s server) database(name string) *Database {
	dsn := func(user string) string { return postgres.DSN(s.host, s.port, user, name) }
	return &Database{
		Name: name, Host: s.host, Port: s.port,
		Owner: dsn(migrations.OwnerRole), App: dsn(migrations.AppRole), Direct: dsn(migrations.AppRole), Super: dsn(postgres.Superuser),
	}
}

// admin runs f on a superuser's connection to the database postgres.
func (s server) admin(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, postgres.DSN(s.host, s.port, postgres.Superuser, "postgres"))
	if err != nil {
		return fmt.Errorf("the test server: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return f(conn)
}

func (s server) create(ctx context.Context, name, template string) error {
	sql := "CREATE DATABASE " + pgx.Identifier{name}.Sanitize() + " OWNER " + migrations.OwnerRole
	if template != "" {
		sql += " TEMPLATE " + pgx.Identifier{template}.Sanitize() + " STRATEGY FILE_COPY"
	}
	return s.admin(ctx, func(c *pgx.Conn) error {
		if _, err := c.Exec(ctx, sql); err != nil {
			return fmt.Errorf("make database %s: %w", name, err)
		}
		return nil
	})
}

func (s server) drop(ctx context.Context, name string) error {
	return s.admin(ctx, func(c *pgx.Conn) error {
		if _, err := c.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)"); err != nil {
			return fmt.Errorf("drop database %s: %w", name, err)
		}
		return nil
	})
}
