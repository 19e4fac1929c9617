// The two database roles and a database, made once and safe to repeat from several processes.

package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/migrations"
)

// Bootstrap makes the roles forgeyard_owner and forgeyard_app and the database
// db, owned by the owner. Repeating it changes nothing.
func (s *Server) Bootstrap(ctx context.Context, db string) error {
	conn, err := pgx.Connect(ctx, s.DSN(Superuser, "postgres"))
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return Bootstrap(ctx, conn, db)
}

// bootstrapLock serialises Bootstrap between processes ("FY", database bootstrap).
const bootstrapLock = 0x46590003

// Bootstrap does the work of (*Server).Bootstrap over a superuser's connection to the database postgres.
func Bootstrap(ctx context.Context, conn *pgx.Conn, db string) error {
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", bootstrapLock); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	defer conn.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", bootstrapLock)
	if _, err := conn.Exec(ctx, migrations.RolesSQL()); err != nil {
		return fmt.Errorf("make the database roles: %w", err)
	}
	var exists bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", db).Scan(&exists); err != nil {
		return fmt.Errorf("look for database %s: %w", db, err)
	}
	if exists {
		return nil
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{db}.Sanitize()+" OWNER "+migrations.OwnerRole); err != nil {
		return fmt.Errorf("make database %s: %w", db, err)
	}
	return nil
}
