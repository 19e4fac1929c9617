// Package daemon is `forgeyard daemon`: a member of the fleet, put together from constructors that the harness shares.
//
// This file: the command. It turns configuration into the things of the outside
// world (sockets, files, clock, exit) that a Daemon is made of.
package daemon

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	charm "github.com/charmbracelet/log"
	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/config"
	"github.com/forgeyard/forgeyard/cluster/membership"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/asynclog"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/server"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/watchdog"
	"github.com/forgeyard/forgeyard/transport/echo"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// stopBound is how long a daemon takes to stop in order before it gives up waiting. What
// is told to stop ends within stopBound and stopGrace all the same, whatever heeds no
// deadline, as a store on a file system that hangs: until then it votes, and might lead
// without its actors.
const (
	stopBound = 15 * time.Second
	stopGrace = 5 * time.Second
	// logBound is how long the last lines of the log may take.
	logBound = time.Second
)

// Command returns `forgeyard daemon`.
func Command(version server.Version) *cobra.Command {
	var file, tokenFile string
	var bootstrap bool
	cmd := &cobra.Command{
		Use:   "daemon",
		Short: "Run a member of the fleet",
		Long:  "Runs a daemon until SIGINT or SIGTERM; a second signal ends it at once. --bootstrap creates a new cluster, once; --join-token-file joins an existing one.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			told, tell := context.WithCancel(cmd.Context())
			defer tell()
			var words atomic.Pointer[slog.Logger] // as the configuration wants them, once it is read
			lines := asynclog.New(cmd.ErrOrStderr(), func(lost uint64) {
				words.Load().Warn("lines of this log are missing: nobody took them", "lines", lost)
			})
			defer lines.Close(logBound)
			words.Store(newLogger(lines, config.Log{}))
			exit := watchdog.Exit(func(code int, reason string) {
				words.Load().Error("ending this process", "reason", reason, "exit", code)
				lines.Flush(logBound)
			})
			watch := watchdog.Arm(told, stopBound+stopGrace, exit)
			defer watch.Disarm()
			watch.Enter("reading the configuration")
			loaded, err := config.Load(config.Options{
				File: file, Environ: os.Environ(), Flags: givenFlags(cmd), Search: config.SearchPath(),
			})
			if err != nil {
				return err
			}
			logger := newLogger(lines, loaded.Log)
			words.Store(logger)
			for _, w := range loaded.Warnings {
				logger.Warn(w)
			}
			watch.Enter("reading the join token")
			token, err := readToken(tokenFile)
			if err != nil {
				return err
			}
			start := Start{Bootstrap: bootstrap, Token: token}
			return run(told, tell, loaded.Config, start, Outside{Logger: logger, Version: version, Exit: exit, Phase: watch.Enter})
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file (default: $FORGEYARD_CONFIG, "+strings.Join(config.SearchPath(), ", ")+")")
	cmd.Flags().BoolVar(&bootstrap, "bootstrap", false, "create a new cluster with this node as its first voter; refused over existing state")
	cmd.Flags().StringVar(&tokenFile, "join-token-file", "", "`file` with the token that forgeyard cluster add printed")
	for _, s := range config.Settings() {
		cmd.Flags().String(s.Flag, "", s.Doc)
	}
	return cmd
}

// readToken reads the join token; no file means none.
func readToken(file string) (membership.Token, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("join token: %w", err)
	}
	token := membership.Token(strings.TrimSpace(string(text)))
	return token, token.Check()
}

// givenFlags returns the settings given on the command line, by dotted path.
func givenFlags(cmd *cobra.Command) map[string]string {
	given := map[string]string{}
	for _, s := range config.Settings() {
		if f := cmd.Flags().Lookup(s.Flag); f.Changed {
			given[s.Path] = f.Value.String()
		}
	}
	return given
}

// run opens what the configuration names, runs the daemon until told ends or it fails, which
// it tells, and stops it. Of out it is given the logger, the version, the exit and who hears the phase.
func run(told context.Context, tell func(), cfg config.Config, start Start, out Outside) (err error) {
	out.Now, out.Tracer, out.Probe = time.Now, trace.Discard, echo.DialUDP
	out.Phase("opening sockets and files")
	if err := open(&out, cfg); err != nil {
		return errors.Join(err, out.close())
	}
	if file := os.Getenv("FORGEYARD_TRACE"); file != "" {
		f, err := trace.Open(file)
		if err != nil {
			return errors.Join(err, out.close())
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out.Tracer = f
		out.Applied = func(index uint64, hash [32]byte) {
			f.Trace(trace.Event{Kind: trace.Applied, Index: index, Hash: hex.EncodeToString(hash[:])})
		}
	}
	out.Actors.AllowCrash = os.Getenv(crashEnv) == "1" // harnesses only
	if out.Scheduler.LeaseTTL, err = leaseTTL(os.Getenv(leaseEnv)); err != nil {
		return errors.Join(err, out.close())
	}
	d := New(cfg, start, out)
	err = d.Start(told)
	if err == nil {
		select {
		case <-told.Done():
			out.Logger.Info("stopping")
		case err = <-d.Failed():
		}
	}
	tell()
	inOrder, cancel := context.WithTimeout(context.WithoutCancel(told), stopBound)
	defer cancel()
	return errors.Join(err, d.Stop(inOrder))
}

// open reads the certificate and binds the sockets, in an order in which what
// is wrong is said before anything is made. Whatever was opened before
// an error is closed by out.close.
func open(out *Outside, cfg config.Config) (err error) {
	distributed, tls := cfg.Cluster.Mode == config.Distributed, cfg.Cluster.TLS
	if distributed || cfg.API.TLS || exists(tls.Cert.Name) { // standalone needs one only to serve agents
		if out.Identity, err = pki.Load(tls.Cert.Name, tls.Key.Name, tls.CA.Name); err != nil {
			return err
		}
		if err := out.Identity.Usable(pki.KindNode, out.Now()); err != nil {
			return err
		}
	}
	for _, dir := range []string{cfg.DataDir, cfg.IdentityDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return cluster.ErrStoreFailed.Wrap(err, "%s could not be made", dir)
		}
	}
	out.Admin, err = server.ListenAdmin(cfg.Admin.Socket)
	switch {
	case errors.Is(err, server.ErrAdminInUse):
		return cluster.ErrStoreInUse.Wrap(err, "")
	case err != nil:
		return errPort.Wrap(err, "admin.socket %s could not be opened", cfg.Admin.Socket)
	}
	if out.API, err = net.Listen("tcp", cfg.HTTP.Listen); err != nil {
		return portError("http.listen", cfg.HTTP.Listen, err)
	}
	if distributed {
		if out.Cluster, err = net.ListenPacket("udp", cfg.Cluster.Listen); err != nil {
			return portError("cluster.listen", cfg.Cluster.Listen, err)
		}
	}
	if out.Identity == nil {
		return nil
	}
	if out.Agents, err = net.ListenPacket("udp", cfg.Agents.Listen); err != nil {
		return portError("agents.listen", cfg.Agents.Listen, err)
	}
	return nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// errPort (FY-PORT-001): a socket could not be bound.
var errPort = &cluster.Error{
	Kind: cluster.Internal, Code: "FY-PORT-001", Message: "a listening socket could not be opened",
	Hint: "another process has the port, or the address is not this machine's: `ss -lnptu` shows who; set another one",
}

func portError(setting, addr string, err error) error {
	return errPort.Wrap(err, "%s %s could not be opened", setting, addr)
}

// newLogger is the one slog handler of a daemon.
func newLogger(w io.Writer, cfg config.Log) *slog.Logger {
	level, err := charm.ParseLevel(strings.ToLower(string(cfg.Level)))
	if err != nil {
		level = charm.InfoLevel
	}
	format := charm.TextFormatter
	if cfg.Format == "Json" {
		format = charm.JSONFormatter
	}
	return slog.New(charm.NewWithOptions(w, charm.Options{
		Level: level, ReportTimestamp: true, TimeFormat: time.RFC3339Nano, Formatter: format,
	}))
}
