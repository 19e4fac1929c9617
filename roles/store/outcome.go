// The one classifier that turns a failed write into what is known of its outcome.

package store

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forgeyard/forgeyard/cluster"
)

// Outcome is what is known after a write.
type Outcome uint8

// The outcomes. Applied is the outcome of no error. NotApplied: the transaction
// was rolled back or never sent; the epoch is still good. Lost: the database
// refused the epoch; nothing was applied. Unknown: stop using the epoch, read
// the truth, take a new epoch.
const (
	Applied    Outcome = 0
	NotApplied Outcome = 1
	Lost       Outcome = 2
	Unknown    Outcome = 3
)

func (o Outcome) String() string {
	return [...]string{"Applied", "NotApplied", "Lost", "Unknown"}[o]
}

// readOnly is read_only_sql_transaction: nothing was applied, and the server was demoted.
const readOnly = "25006"

// Classify tells the outcome of a write by its error:
//
//	no error                                        Applied
//	FY001, cluster.Fenced                           Lost
//	not sent: no connection, connect refused        NotApplied
//	08*, 40003, 57P01, 57P02, 57P04, 57P05          Unknown
//	25P02, 25P03, 25P04                             Unknown (the transaction ended, the reason was not seen)
//	severity FATAL or PANIC                         Unknown (the session ended while it worked)
//	any other SQLSTATE                              NotApplied (an error rolls the transaction back)
//	context ended, connection broke, anything else  Unknown
//
// What was sent and not answered is Unknown, and so is every error this table
// does not know: a wrong NotApplied repeats a write, a wrong Unknown costs an epoch.
func Classify(err error) Outcome {
	if err == nil {
		return Applied
	}
	var ns *notSent
	var ce *pgconn.ConnectError
	var pg *pgconn.PgError
	var known *cluster.Error
	switch {
	case errors.As(err, &known) && (known.Kind == cluster.Fenced):
		return Lost
	case errors.As(err, &known) && known.OutcomeUnknown:
		return Unknown
	case errors.As(err, &ns), errors.As(err, &ce), errors.Is(err, pgx.ErrNoRows), errors.Is(err, pgx.ErrTooManyRows):
		return NotApplied
	case errors.As(err, &pg):
		return classifyState(pg)
	case pgconn.SafeToRetry(err):
		return NotApplied
	case known != nil:
		return NotApplied
	}
	return Unknown
}

func classifyState(pg *pgconn.PgError) Outcome {
	switch pg.Code {
	case "FY001":
		return Lost
	case "40003", "57P01", "57P02", "57P04", "57P05", "25P02", "25P03", "25P04":
		return Unknown
	}
	if strings.HasPrefix(pg.Code, "08") || pg.SeverityUnlocalized == "FATAL" || pg.SeverityUnlocalized == "PANIC" {
		return Unknown
	}
	return NotApplied
}

// Retryable reports whether the same call may simply be made again: the outcome
// is NotApplied and the cause passes (serialization failure, deadlock, lock or
// statement timeout, no connection, a server that starts, is full or was demoted).
func Retryable(err error) bool {
	if err == nil || Classify(err) != NotApplied {
		return false
	}
	switch state(err) {
	case "40001", "40P01", "55P03", "57014":
		return true
	}
	var known *cluster.Error
	return errors.As(explain(err), &known) && (known.Code == ErrUnavailable.Code || known.Code == ErrReadOnly.Code)
}

// broken reports whether the connection that gave this error must not be used again.
func broken(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == readOnly || Classify(err) == Unknown
	}
	var ne net.Error
	return errors.As(err, &ne) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
