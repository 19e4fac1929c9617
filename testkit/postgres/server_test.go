// The private server's life: started, stopped, and ended with a parent that was killed.

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/forgeyard/forgeyard/testkit/postgres"
)

// childEnv makes the test binary start a server, print its pid, and wait to be killed.
const childEnv = "POSTGRES_TEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		s, err := postgres.Start(context.Background(), postgres.Options{Dir: dir, Remove: true})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(s.Pid())
		select {}
	}
	goleak.VerifyTestMain(m)
}

// shortDir is outside t.TempDir, whose parents only root may pass through.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "fypg")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func ping(ctx context.Context, dsn string) error {
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	return c.Ping(ctx)
}

func TestServerLife(t *testing.T) {
	dir := shortDir(t)
	ctx := t.Context()
	s, err := postgres.Start(ctx, postgres.Options{Dir: dir})
	require.NoError(t, err)
	require.NoError(t, s.Bootstrap(ctx, "forgeyard"))
	require.NoError(t, s.Bootstrap(ctx, "forgeyard"), "repeating changes nothing")
	require.NoError(t, ping(ctx, s.DSN("forgeyard_owner", "forgeyard")))
	require.NoError(t, ping(ctx, s.DSN("forgeyard_app", "forgeyard")))

	require.NoError(t, s.Pause())
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	require.ErrorIs(t, ping(short, s.DSN("forgeyard_app", "forgeyard")), context.DeadlineExceeded)
	cancel()
	require.NoError(t, s.Resume())
	require.NoError(t, ping(ctx, s.DSN("forgeyard_app", "forgeyard")))

	require.NoError(t, s.Kill())
	require.Error(t, ping(ctx, s.DSN("forgeyard_app", "forgeyard")))
	s, err = postgres.Start(ctx, postgres.Options{Dir: dir, Fsync: true})
	require.NoError(t, err, "a crashed server recovers in the same directory")
	require.NoError(t, ping(ctx, s.DSN("forgeyard_app", "forgeyard")), "and has kept its roles and database")
	require.NoError(t, s.Stop(ctx))
	require.NoError(t, s.Stop(ctx), "stopping twice is harmless")
	require.DirExists(t, filepath.Join(dir, "data"), "kept unless Remove was asked for")
}

// A session that outlives its killed server holds the directory; the next start waits for its end.
func TestStartAfterAKillWaitsForSessions(t *testing.T) {
	dir := shortDir(t)
	ctx := t.Context()
	s, err := postgres.Start(ctx, postgres.Options{Dir: dir})
	require.NoError(t, err)
	c, err := pgx.Connect(ctx, s.DSN(postgres.Superuser, "postgres"))
	require.NoError(t, err)
	session := int(c.PgConn().PID())
	require.NoError(t, syscall.Kill(session, syscall.SIGSTOP))
	require.NoError(t, s.Kill())
	started := make(chan error, 1)
	go func() {
		var err error
		s, err = postgres.Start(ctx, postgres.Options{Dir: dir})
		started <- err
	}()
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "postgres.log"))
		return err == nil && strings.Contains(string(text), "pre-existing shared memory block")
	}, 20*time.Second, 20*time.Millisecond)
	require.Empty(t, started)
	require.NoError(t, syscall.Kill(session, syscall.SIGCONT))
	require.NoError(t, <-started)
	_ = c.Close(ctx) // its server is gone
	require.NoError(t, s.Stop(ctx))
}

func TestLongDirectoryStillHasASocket(t *testing.T) {
	dir := filepath.Join(shortDir(t), strings.Repeat("d", 120))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o711))
	s, err := postgres.Start(t.Context(), postgres.Options{Dir: dir, Remove: true})
	require.NoError(t, err)
	require.NoError(t, ping(t.Context(), s.DSN(postgres.Superuser, "postgres")))
	require.NoError(t, s.Stop(t.Context()))
	require.NoDirExists(t, dir)
	require.NoDirExists(t, s.Host())
}

// A start that fails says why and is not tried again, whatever an earlier one left in the log.
func TestBrokenStartSaysWhy(t *testing.T) {
	log := filepath.Join(shortDir(t), "log")
	require.NoError(t, os.WriteFile(log, []byte("FATAL:  pre-existing shared memory block (key 1) is still in use\n"), 0o644))
	_, err := postgres.Start(t.Context(), postgres.Options{Dir: shortDir(t), LogFile: log, Extra: []string{"shared_buffers=nonsense"}})
	const why = `invalid value for parameter "shared_buffers"`
	require.ErrorContains(t, err, why)
	require.NotContains(t, err.Error(), "pre-existing")
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), why), "%s", text)
}

func TestMissingBinaries(t *testing.T) {
	t.Setenv(postgres.BinEnv, t.TempDir())
	_, err := postgres.Start(t.Context(), postgres.Options{Dir: shortDir(t)})
	require.ErrorIs(t, err, postgres.ErrNotInstalled)
	require.ErrorContains(t, err, "apt-get install postgresql")
}

func TestServerEndsWithItsKilledParent(t *testing.T) {
	dir := shortDir(t)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line := make([]byte, 64)
	n, err := out.Read(line)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	require.NoError(t, err, "the child said %s", line[:n])
	require.NoError(t, syscall.Kill(pid, 0))

	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())
	require.Eventually(t, func() bool {
		_, derr := os.Stat(dir)
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) && errors.Is(derr, os.ErrNotExist)
	}, 20*time.Second, 20*time.Millisecond, "the server or its directory outlived its owner")
}
