// The classifier's table: every SQLSTATE and every kind of error the store can meet.

package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
)

func TestClassify(t *testing.T) {
	sql := func(severity, code string) error {
		return fmt.Errorf("wrapped: %w", &pgconn.PgError{SeverityUnlocalized: severity, Code: code})
	}
	type is struct {
		outcome   Outcome
		retryable bool
		code      string // FY code after explain; "" = passes through
	}
	final, again, unknown := is{NotApplied, false, ""}, is{NotApplied, true, ""}, is{Unknown, false, "FY-DB-008"}
	for name, c := range map[string]struct {
		err error
		is  is
	}{
		"nil": {nil, is{Applied, false, ""}},
		// The fence.
		"FY001 fenced":             {sql("ERROR", "FY001"), is{Lost, false, "FENCED"}},
		"FY002 unfenced write":     {sql("ERROR", "FY002"), is{NotApplied, false, "FY-DB-014"}},
		"FY003 fence above":        {sql("ERROR", "FY003"), final},
		"FY004 other history":      {sql("ERROR", "FY004"), is{NotApplied, false, "FY-DB-007"}},
		"FY005 isolation":          {sql("ERROR", "FY005"), final},
		"a refused guard":          {cluster.ErrFenced.Wrap(nil, ""), is{Lost, false, "FENCED"}},
		"an unconfirmed view":      {cluster.ErrUnconfirmed, is{Lost, false, "FY-ROLE-002"}},
		"explained once":           {ErrReadOnly.Wrap(nil, ""), is{NotApplied, true, "FY-DB-005"}},
		"explained, final":         {ErrOtherCluster.Wrap(nil, ""), is{NotApplied, false, "FY-DB-003"}},
		"refused at connecting":    {&notSent{ErrOtherCluster}, is{NotApplied, false, "FY-DB-003"}},
		"unknown, explained":       {ErrUnknown.Wrap(pgx.ErrNoRows, ""), unknown},
		"08000 connection":         {sql("ERROR", "08000"), unknown},
		"08003 does not exist":     {sql("ERROR", "08003"), unknown},
		"08006 failure":            {sql("FATAL", "08006"), unknown},
		"08007 resolution unknown": {sql("ERROR", "08007"), unknown},
		"08P01 protocol":           {sql("FATAL", "08P01"), unknown},
		"40003 completion unknown": {sql("ERROR", "40003"), unknown},
		"57P01 admin shutdown":     {sql("FATAL", "57P01"), unknown},
		"57P02 crash":              {sql("WARNING", "57P02"), unknown},
		"57P04 database dropped":   {sql("FATAL", "57P04"), unknown},
		"57P05 idle session":       {sql("FATAL", "57P05"), unknown},
		"25P02 aborted before":     {sql("ERROR", "25P02"), unknown},
		"25P03 idle in tx":         {sql("FATAL", "25P03"), unknown},
		"25P04 transaction time":   {sql("FATAL", "25P04"), unknown},
		"XX000 fatal":              {sql("FATAL", "XX000"), unknown},
		"58030 panic":              {sql("PANIC", "58030"), unknown},
		// The server rolled back and said so.
		"40001 serialization":     {sql("ERROR", "40001"), again},
		"40P01 deadlock":          {sql("ERROR", "40P01"), again},
		"55P03 lock timeout":      {sql("ERROR", "55P03"), again},
		"57014 statement timeout": {sql("ERROR", "57014"), again},
		"40002 deferred":          {sql("ERROR", "40002"), final},
		"23505 unique":            {sql("ERROR", "23505"), final},
		"23503 foreign key":       {sql("ERROR", "23503"), final},
		"23514 check":             {sql("ERROR", "23514"), final},
		"22001 too long":          {sql("ERROR", "22001"), final},
		"42601 syntax":            {sql("ERROR", "42601"), final},
		"42501 privilege":         {sql("ERROR", "42501"), final},
		"0A000 plan changed":      {sql("ERROR", "0A000"), final},
		"P0001 raised":            {sql("ERROR", "P0001"), final},
		"XX000 internal":          {sql("ERROR", "XX000"), final},
		"58030 io error":          {sql("ERROR", "58030"), final},
		"25006 read only":         {sql("ERROR", "25006"), is{NotApplied, true, "FY-DB-005"}},
		"53100 disk full":         {sql("ERROR", "53100"), is{NotApplied, true, "FY-DB-001"}},
		"53200 out of memory":     {sql("ERROR", "53200"), is{NotApplied, true, "FY-DB-001"}},
		// Nothing was sent: the error is of connecting or of waiting for a connection.
		"pool timeout":           {&notSent{context.DeadlineExceeded}, is{NotApplied, true, "FY-DB-001"}},
		"cancelled while queued": {&notSent{context.Canceled}, is{NotApplied, true, "FY-DB-001"}},
		"connect refused":        {&notSent{&net.OpError{Op: "dial", Err: errors.New("refused")}}, is{NotApplied, true, "FY-DB-001"}},
		"53300 too many":         {&notSent{sql("FATAL", "53300")}, is{NotApplied, true, "FY-DB-001"}},
		"57P03 starting":         {&notSent{sql("FATAL", "57P03")}, is{NotApplied, true, "FY-DB-001"}},
		"57P01 while connecting": {&notSent{sql("FATAL", "57P01")}, is{NotApplied, true, "FY-DB-001"}},
		"28P01 password":         {&notSent{sql("FATAL", "28P01")}, is{NotApplied, false, "FY-DB-012"}},
		"28000 authorization":    {&notSent{sql("FATAL", "28000")}, is{NotApplied, false, "FY-DB-012"}},
		"3D000 no database":      {&notSent{sql("FATAL", "3D000")}, is{NotApplied, false, "FY-DB-012"}},
		"standby":                {&notSent{errReadOnlyServer}, is{NotApplied, true, "FY-DB-005"}},
		// Sent, and no answer.
		"deadline after sending":  {context.DeadlineExceeded, unknown},
		"cancelled after sending": {fmt.Errorf("timeout: %w", context.Canceled), unknown},
		"connection reset":        {&net.OpError{Op: "read", Err: errors.New("reset")}, unknown},
		"end of file":             {io.ErrUnexpectedEOF, unknown},
		"anything else":           {errors.New("surprise"), unknown},
		// Answers about the rows of a statement that ran alone.
		"no rows":       {pgx.ErrNoRows, final},
		"too many rows": {pgx.ErrTooManyRows, final},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.is.outcome, Classify(c.err))
			require.Equal(t, c.is.retryable, Retryable(c.err))
			got := explain(c.err)
			require.Equal(t, c.is.outcome, Classify(got), "explaining keeps the outcome")
			require.Equal(t, c.is.outcome == Unknown, cluster.OutcomeUnknown(got))
			var known *cluster.Error
			if errors.As(got, &known); known == nil {
				known = &cluster.Error{}
			}
			require.Equal(t, c.is.code, known.Code)
			if c.err != nil {
				require.ErrorIs(t, got, c.err, "the cause stays in the chain")
			}
		})
	}
}

// Each error code is used once and has a hint to act on.
func TestErrorsAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range []*cluster.Error{
		ErrUnavailable, ErrNotMigrated, ErrOtherCluster, ErrNewerSchema, ErrReadOnly, ErrDatabaseAhead, ErrDatabaseHistory, ErrUnknown,
		ErrMigrationLocked, ErrPooler, ErrAppPrivileges, ErrDSN, ErrRaiseBlocked, ErrUnfenced, ErrTokenUnknown, ErrTokenExpired, ErrTokenUsed, ErrTokenNode,
	} {
		require.False(t, seen[e.Code], e.Code)
		seen[e.Code] = true
		require.NotEmpty(t, e.Message)
		require.NotEmpty(t, e.Hint)
	}
}
