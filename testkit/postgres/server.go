// Package postgres runs a private PostgreSQL server on this machine, for tests and for the development fleet.
//
// It does not import testing. The server belongs to the process that started
// it: a watcher ends it when that process dies in any way, kill -9 included.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Superuser is the name of the bootstrap superuser of every server this package makes.
const Superuser = "postgres"

// socketPort names the socket of a server without a TCP port.
const socketPort = 5432

// maxSocketDir keeps the socket's path below the 107 bytes the kernel accepts.
const maxSocketDir = 107 - len("/.s.PGSQL.65535")

// startTimeout bounds initdb and the first answer; a loaded machine is slow.
const startTimeout = 60 * time.Second

// Options says how to run a server.
type Options struct {
	Dir     string   // absolute; holds data, socket and log; made when missing, reused when it holds a database cluster
	Port    int      // TCP port on 127.0.0.1; 0 = unix socket only
	Fsync   bool     // durable commits; off makes tests fast
	LogFile string   // "" = Dir/postgres.log
	Remove  bool     // remove Dir when the server ends, also when this process is killed
	Extra   []string // further settings, "name=value"
}

// Server is a running server. Its methods are safe for concurrent use.
type Server struct {
	host string
	port int
	log  string
	from int64 // where in the log the last launch begins

	mu    sync.Mutex // guards the end of the process
	cmd   *exec.Cmd
	watch *watcher
	ended bool
	stops bool // paused with SIGSTOP
}

// Start makes the database cluster where needed, starts the server and returns
// once it answers. ErrNotInstalled when there are no binaries.
func Start(ctx context.Context, o Options) (*Server, error) {
	bin, err := Find()
	if err != nil {
		return nil, err
	}
	if !filepath.IsAbs(o.Dir) {
		return nil, fmt.Errorf("the server's directory %q is not absolute", o.Dir)
	}
	cred, err := account()
	if err != nil {
		return nil, err
	}
	if err := own(o.Dir, cred); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	data := filepath.Join(o.Dir, "data")
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); errors.Is(err, os.ErrNotExist) {
		if err := initdb(ctx, bin, data, cred); err != nil {
			return nil, err
		}
	}
	s := &Server{host: o.Dir, port: socketPort, log: o.LogFile}
	if o.Port != 0 {
		s.port = o.Port
	}
	if s.log == "" {
		s.log = filepath.Join(o.Dir, "postgres.log")
	}
	drop := []string{}
	if o.Remove {
		drop = append(drop, o.Dir)
	}
	if len(o.Dir) > maxSocketDir {
		if s.host, err = os.MkdirTemp("/tmp", "fypg"); err != nil {
			return nil, fmt.Errorf("socket directory: %w", err)
		}
		if err := own(s.host, cred); err != nil {
			return nil, err
		}
		drop = append(drop, s.host)
	}
	if s.watch, err = startWatcher(data, drop); err != nil {
		return nil, err
	}
	for {
		if err := s.launch(bin, data, cred, o); err != nil {
			return nil, errors.Join(err, s.watch.dismiss())
		}
		err := s.ready(ctx)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, errHeld) || ctx.Err() != nil {
			return nil, errors.Join(err, s.Kill())
		}
		_ = s.cmd.Wait() // it has ended, and said why
	}
}

// errHeld: sessions of a server that was killed have not ended yet, and hold the
// directory. They end by themselves, so a start is tried again.
var errHeld = errors.New("the directory is held by sessions of a server that was killed")

func initdb(ctx context.Context, bin Binaries, data string, cred *syscall.Credential) error {
	cmd := exec.CommandContext(ctx, bin.Initdb, "-D", data, "-U", Superuser, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (s *Server) launch(bin Binaries, data string, cred *syscall.Credential, o Options) error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("server log: %w", err)
	}
	defer log.Close()
	if s.from, err = log.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("server log: %w", err)
	}
	settings := []string{
		fmt.Sprintf("port=%d", s.port), "unix_socket_directories=" + s.host, "listen_addresses=",
		"max_connections=400", "shared_buffers=64MB", "max_wal_senders=0", "wal_level=minimal", "timezone=UTC", "log_timezone=UTC",
	}
	if o.Port != 0 {
		settings = append(settings, "listen_addresses=127.0.0.1")
	}
	if !o.Fsync {
		settings = append(settings, "fsync=off", "synchronous_commit=off", "full_page_writes=off")
	}
	args := []string{"-D", data}
	for _, kv := range append(settings, o.Extra...) {
		args = append(args, "-c", kv)
	}
	cmd := exec.Command(bin.Postgres, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	// An own process group: Ctrl-C at the terminal must not reach the server
	// before the processes that use it have stopped.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	s.cmd = cmd
	return nil
}

// ready polls until the server answers a query; it notices an early exit.
func (s *Server) ready(ctx context.Context) error {
	for {
		conn, err := pgx.Connect(ctx, s.DSN(Superuser, "postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		if s.exited() {
			end := s.said()
			if strings.Contains(end, "pre-existing shared memory block") {
				return fmt.Errorf("%w; its log %s ends: %s", errHeld, s.log, end)
			}
			return fmt.Errorf("postgres ended while starting; its log %s ends: %s", s.log, end)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("postgres did not answer: %w; its log %s ends: %s", errors.Join(ctx.Err(), err), s.log, s.said())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// exited looks without waiting or reaping.
func (s *Server) exited() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

// said is the end of what the server logged since its last launch: an earlier
// one's last words are not its own.
func (s *Server) said() string {
	const most = 600
	b, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b[max(0, min(int(s.from), len(b)), len(b)-most):]))
}

// Host is the directory of the unix socket.
func (s *Server) Host() string { return s.host }

// Port is the TCP port, or the number in the socket's name.
func (s *Server) Port() int { return s.port }

// LogFile is the path of the server's log.
func (s *Server) LogFile() string { return s.log }

// Pid is the postmaster's process id.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Backends lists the process ids of the postmaster's children.
func (s *Server) Backends() ([]int, error) { return childrenOf(s.cmd.Process.Pid) }

// DSN names a database of this server over its unix socket.
func (s *Server) DSN(user, db string) string { return DSN(s.host, s.port, user, db) }

// DSN names a database; host is an address or the directory of a unix socket.
func DSN(host string, port int, user, db string) string {
	return fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=disable", host, port, user, db)
}

// Pause stops the postmaster and all its children with SIGSTOP.
func (s *Server) Pause() error { return s.stopAll(true) }

// Resume continues a paused server.
func (s *Server) Resume() error { return s.stopAll(false) }

func (s *Server) stopAll(stop bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errors.New("the server has ended")
	}
	s.stops = stop
	if stop {
		return s.signalAll(syscall.SIGSTOP)
	}
	return s.signalAll(syscall.SIGCONT)
}

// signalAll reaches the backends one by one: each leads a process group of its own.
func (s *Server) signalAll(sig syscall.Signal) error {
	children, err := childrenOf(s.cmd.Process.Pid)
	if err != nil {
		return err
	}
	for _, pid := range append([]int{s.cmd.Process.Pid}, children...) {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signal %v to %d: %w", sig, pid, err)
		}
	}
	return nil
}

// Stop ends the server in order (SIGINT, sessions are cut off), within ctx; then it is killed.
func (s *Server) Stop(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- s.end(syscall.SIGINT) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		err := syscall.Kill(s.cmd.Process.Pid, syscall.SIGKILL)
		return errors.Join(ctx.Err(), err, <-done)
	}
}

// Kill ends the postmaster with kill -9, as a crash would; its backends follow by themselves.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

func (s *Server) end(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	s.ended = true
	if s.stops { // stopped backends would outlive their postmaster
		if err := s.signalAll(syscall.SIGCONT); err != nil {
			return err
		}
	}
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end postgres: %w", err)
	}
	var exit *exec.ExitError
	if err := s.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("wait for postgres: %w", err)
	}
	return s.watch.dismiss()
}
