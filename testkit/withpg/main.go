// Command withpg runs another command with one shared PostgreSQL server:
//
//	go run ./testkit/withpg -- go test ./...
//
// It exits with the command's status, passes signals on, and leaves neither a
// process nor a directory behind.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/forgeyard/forgeyard/testkit/pgtest"
	"github.com/forgeyard/forgeyard/testkit/postgres"
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: withpg -- command [argument ...]")
		os.Exit(2)
	}
	code, err := run(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "withpg:", err)
	}
	os.Exit(code)
}

// run returns the exit status to end with: the command's own, 128+n when
// signal n ended it, 1 for a failure of withpg itself.
func run(args []string) (code int, err error) {
	// Before the server exists, so that no signal can leave it behind.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)

	dir, err := os.MkdirTemp("/tmp", "fypgtest")
	if err != nil {
		return 1, fmt.Errorf("server directory: %w", err)
	}
	srv, err := postgres.Start(context.Background(), postgres.Options{Dir: dir, Remove: true})
	if err != nil {
		return 1, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // a starved machine takes long to remove the files of many databases
		defer cancel()
		if serr := srv.Stop(ctx); serr != nil {
			code, err = max(code, 1), errors.Join(err, serr)
		}
	}()

	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s:%d", pgtest.Env, srv.Host(), srv.Port()))
	if err := cmd.Start(); err != nil {
		return 127, fmt.Errorf("start %s: %w", args[0], err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			// An error means the command has just ended; done says how.
			_ = cmd.Process.Signal(sig)
		case err := <-done:
			return status(cmd.ProcessState, err)
		}
	}
}

func status(st *os.ProcessState, err error) (int, error) {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 1, fmt.Errorf("wait: %w", err)
	}
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return st.ExitCode(), nil
}
