// Package migrations owns the database schema: the SQL, the two database roles, and the way a binary brings a database up to its own version.
//
// DESIGN.md has the table of which column belongs to whom.
package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/forgeyard/forgeyard/migrations/mutant"
)

//go:embed [0-9]*_*.sql
var sources embed.FS

//go:embed roles.sql
var rolesSQL string

// The two database roles.
const (
	OwnerRole = "forgeyard_owner" // owns the objects, runs migrations
	AppRole   = "forgeyard_app"   // what daemons write with; owns nothing
)

// VersionTable records which migrations a database has.
const VersionTable = "coordination.schema_version"

// RolesSQL makes the two database roles; a superuser runs it once per server.
func RolesSQL() string { return rolesSQL }

// Sources are the embedded migration files.
func Sources() fs.FS { return mutant.Files(sources) }

// Config names the two connections a migration needs.
type Config struct {
	Owner  string        // DSN of forgeyard_owner
	Direct string        // DSN without a pooler between: the lock is held by its session
	Name   string        // who migrates, shown to a waiter
	Wait   time.Duration // how long to wait for another migrator; 0 = DefaultWait
}

// DefaultWait is how long a migrator waits for another one before it gives up.
const DefaultWait = 8 * time.Second

// NewerSchemaError says that the database was migrated by a newer binary.
type NewerSchemaError struct {
	Database, Binary int64
}

func (e *NewerSchemaError) Error() string {
	return fmt.Sprintf("the database has schema version %d, this binary knows up to %d", e.Database, e.Binary)
}

// Up brings the database to this binary's version, under a lock that one
// migrator holds at a time. It returns how many migrations ran.
// *LockedError when another migrator keeps the lock, *NewerSchemaError when the
// database is ahead.
func Up(ctx context.Context, c Config) (ran int, err error) {
	l, err := acquire(ctx, c)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.release(ctx)) }()

	cfg, err := pgx.ParseConfig(c.Owner)
	if err != nil {
		return 0, fmt.Errorf("owner DSN: %w", err)
	}
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS coordination"); err != nil {
		return 0, fmt.Errorf("schema coordination: %w", err)
	}
	// The store carries the dialect, which is why NewProvider gets none.
	versions, err := database.NewStore(goose.DialectPostgres, VersionTable)
	if err != nil {
		return 0, fmt.Errorf("version table: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectCustom, db, Sources(), goose.WithStore(versions), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return 0, fmt.Errorf("read migrations: %w", err)
	}
	have, want, err := p.GetVersions(ctx)
	if err != nil {
		return 0, fmt.Errorf("schema version: %w", err)
	}
	if have > want {
		return 0, &NewerSchemaError{Database: have, Binary: want}
	}
	done, err := p.Up(ctx)
	if err != nil {
		return len(done), fmt.Errorf("migrate: %w", err)
	}
	return len(done), nil
}
