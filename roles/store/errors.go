// The store's errors and how a database error becomes one of them.

package store

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/migrations"
)

// The errors of the store, all of kind StorageFailure unless said otherwise.
// None is retried blindly; Retryable tells which may be.
var (
	// ErrUnavailable (FY-DB-001): PostgreSQL did not answer, or not in time; nothing was written.
	ErrUnavailable = &cluster.Error{Kind: cluster.TransportFailure, Code: "FY-DB-001", Message: "PostgreSQL cannot be reached", Hint: "check that it runs and that this node reaches it; Raft goes on meanwhile and roles resume by themselves"}
	// ErrNotMigrated (FY-DB-002): the database is not Forgeyard's, or was not migrated yet.
	ErrNotMigrated = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-DB-002", Message: "this database has no Forgeyard schema", Hint: "check the database name in the DSN; a daemon that has the owner DSN migrates at start"}
	// ErrOtherCluster (FY-DB-003): the database belongs to another cluster.
	ErrOtherCluster = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-DB-003", Message: "this database belongs to another cluster", Hint: "give each cluster a database of its own; check the DSNs and this node's certificate"}
	// ErrNewerSchema (FY-DB-004): a newer binary migrated the database. Kind IncompatibleVersion.
	ErrNewerSchema = &cluster.Error{Kind: cluster.IncompatibleVersion, Code: "FY-DB-004", Message: "the database schema is newer than this binary", Hint: "start a binary at least as new as the one that migrated the database"}
	// ErrReadOnly (FY-DB-005): the server accepts no writes; the connection was dropped.
	ErrReadOnly = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-DB-005", Message: "PostgreSQL accepts no writes", Hint: "the server is a standby or was demoted; list all servers in the DSN so that the writable one is found"}
	// ErrDatabaseAhead (FY-DB-006): the fence is above the committed epoch at the same generation.
	ErrDatabaseAhead = &cluster.Error{Kind: cluster.StorageFailure, Code: cluster.CodeDatabaseAhead, Message: "the database fence is above the committed epoch", Hint: "Raft state was lost or a second fleet uses this database: stop the other fleet, or raise the cluster's generation; until then the role stays unassigned"}
	// ErrDatabaseHistory (FY-DB-007): PostgreSQL's system identifier or timeline changed under the fence.
	ErrDatabaseHistory = &cluster.Error{Kind: cluster.StorageFailure, Code: cluster.CodeDatabaseHistory, Message: "PostgreSQL is on another history than the fence", Hint: "a standby was promoted or a backup restored: verify that no acknowledged work is missing, then raise the cluster's generation"}
	// ErrUnknown (FY-DB-008): the write may or may not have happened.
	ErrUnknown = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-DB-008", Message: "the outcome of a write is unknown", Hint: "read the truth before retrying", OutcomeUnknown: true}
	// ErrMigrationLocked (FY-DB-009): another migrator kept the lock.
	ErrMigrationLocked = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-DB-009", Message: "another migration is running", Hint: "wait for it, or end the session that is named"}
	// ErrPooler (FY-DB-010): a transaction pooler sits between this node and PostgreSQL.
	ErrPooler = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-DB-010", Message: "a transaction pooler sits between this node and PostgreSQL", Hint: "point the DSN at PostgreSQL itself, or run the pooler in session mode and let it pass the startup parameters"}
	// ErrAppPrivileges (FY-DB-011): the app DSN's user could switch the fence off.
	ErrAppPrivileges = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-DB-011", Message: "the app DSN's user may change the schema", Hint: "connect as forgeyard_app; only the owner DSN uses forgeyard_owner"}
	// ErrDSN (FY-DB-012): the server refused the DSN's user, password or database.
	ErrDSN = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-DB-012", Message: "PostgreSQL refuses the DSN", Hint: "check user, password and database name; migrations/roles.sql makes the roles"}
	// ErrRaiseBlocked (FY-DB-013): sessions of an older owner could not be ended in time.
	ErrRaiseBlocked = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-DB-013", Message: "sessions under an older fence do not end", Hint: "find them in pg_locks (locktype advisory) and end them; the role is tried again by itself"}
	// ErrUnfenced (FY-DB-014): a write of leader-owned columns outside a fence, which is a defect. Kind Internal.
	ErrUnfenced = &cluster.Error{Kind: cluster.Internal, Code: "FY-DB-014", Message: "leader-owned columns were written outside a fence", Hint: "report this with the log"}
)

// notSent marks an error from before anything was sent.
type notSent struct{ err error }

func (e *notSent) Error() string { return e.err.Error() }
func (e *notSent) Unwrap() error { return e.err }

// state returns the SQLSTATE of an error, "" for none.
func state(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// explain gives a failed call its place in the error model. Errors that say
// something about the statement (no rows, a violated constraint) pass through.
func explain(err error) error {
	var known *cluster.Error
	switch {
	case err == nil, errors.As(err, &known), errors.Is(err, pgx.ErrNoRows), errors.Is(err, pgx.ErrTooManyRows):
		return err
	}
	switch code := state(err); {
	case code == "FY001":
		return cluster.ErrFenced.Wrap(err, "the database refused the epoch")
	case code == "FY002":
		return ErrUnfenced.Wrap(err, "")
	case code == "FY004":
		return ErrDatabaseHistory.Wrap(err, "")
	case code == readOnly, errors.Is(err, errReadOnlyServer):
		return ErrReadOnly.Wrap(err, "")
	case code == "28000", code == "28P01", code == "3D000":
		return ErrDSN.Wrap(err, "")
	case Classify(err) == Unknown:
		return ErrUnknown.Wrap(err, "")
	case unreached(err), strings.HasPrefix(code, "53"):
		return ErrUnavailable.Wrap(err, "")
	}
	return err
}

// unreached reports whether a call ended before anything was sent.
func unreached(err error) bool {
	var ns *notSent
	var ce *pgconn.ConnectError
	return errors.As(err, &ns) || errors.As(err, &ce) || pgconn.SafeToRetry(err)
}

// explainMigration does the same for a failed migration.
func explainMigration(err error) error {
	var newer *migrations.NewerSchemaError
	var locked *migrations.LockedError
	switch {
	case errors.As(err, &newer):
		return ErrNewerSchema.Wrap(err, "the database has schema version %d, this binary knows up to %d", newer.Database, newer.Binary)
	case errors.As(err, &locked):
		return ErrMigrationLocked.Wrap(err, "another migration has been running for longer than %s", locked.Waited)
	}
	return explain(err)
}
