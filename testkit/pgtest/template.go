// The template: a migrated database that every test's database is a copy of, made once per server.

package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/migrations"
	"github.com/forgeyard/forgeyard/testkit/postgres"
)

// templateLock serialises the making of the template between test processes.
const templateLock = 0x46590004

// template returns the name of the migrated template for this binary's
// migrations; the hash in its name keeps differing binaries apart.
func (s server) template(ctx context.Context) (string, error) {
	sum, err := fingerprint()
	if err != nil {
		return "", err
	}
	name := "fy_template_" + sum
	err = s.admin(ctx, func(c *pgx.Conn) error {
		if ok, err := isTemplate(ctx, c, name); ok || err != nil {
			return err
		}
		if _, err := c.Exec(ctx, "SELECT pg_advisory_lock($1)", templateLock); err != nil {
			return fmt.Errorf("template lock: %w", err)
		}
		if ok, err := isTemplate(ctx, c, name); ok || err != nil {
			return err // another process made it meanwhile; closing the session frees the lock
		}
		if err := s.drop(ctx, name); err != nil { // left half-made by a killed process
			return err
		}
		if err := s.bootstrap(ctx, name); err != nil {
			return err
		}
		d := s.database(name)
		if _, err := migrations.Up(ctx, migrations.Config{Owner: d.Owner, Direct: d.Direct, Name: "pgtest"}); err != nil {
			return fmt.Errorf("migrate the template: %w", err)
		}
		if _, err := c.Exec(ctx, "ALTER DATABASE "+pgx.Identifier{name}.Sanitize()+" WITH IS_TEMPLATE true ALLOW_CONNECTIONS false"); err != nil {
			return fmt.Errorf("finish the template: %w", err)
		}
		return nil
	})
	return name, err
}

func isTemplate(ctx context.Context, c *pgx.Conn, name string) (ok bool, err error) {
	if err := c.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1 AND datistemplate)", name).Scan(&ok); err != nil {
		return false, fmt.Errorf("look for the template: %w", err)
	}
	return ok, nil
}

func (s server) roles(ctx context.Context) error { return s.bootstrap(ctx, "postgres") }

func (s server) bootstrap(ctx context.Context, db string) error {
	return s.admin(ctx, func(c *pgx.Conn) error { return postgres.Bootstrap(ctx, c, db) })
}

func fingerprint() (string, error) {
	h := sha256.New()
	h.Write([]byte(migrations.RolesSQL()))
	err := fs.WalkDir(migrations.Sources(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := fs.ReadFile(migrations.Sources(), path)
		h.Write([]byte(path))
		h.Write(b)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read migrations: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)[:6]), nil
}
