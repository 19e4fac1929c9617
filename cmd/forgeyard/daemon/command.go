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
	"os/signal"
	"strings"
	"syscall"
	"time"

	charm "github.com/charmbracelet/log"
	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/config"
	"github.com/forgeyard/forgeyard/cluster/membership"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/server"
	"github.com/forgeyard/forgeyard/transport/echo"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// stopBound is how long a daemon takes to stop in order before it gives up waiting;
// stopGrace later it ends all the same, whatever heeds no deadline, as a store on a
// file system that hangs: until then it votes, and might lead without its actors.
const (
	stopBound = 15 * time.Second
	stopGrace = 5 * time.Second
)

// exitStuck is the exit status of a process that its own work keeps from stopping.
const exitStuck = 70

// errStuck (FY-STOP-001): some part of the daemon did not stop.
var errStuck = &cluster.Error{
	Kind: cluster.Internal, Code: "FY-STOP-001", Message: "a part of this daemon does not stop, so the process ends without it",
	Hint: "look for what hangs: the file system of the artifact store, or the one under data_dir",
}

// Command returns `forgeyard daemon`.
func Command(version server.Version) *cobra.Command {
	var file, tokenFile string
	var bootstrap bool
	cmd := &cobra.Command{
		Use:   "daemon",
		Short: "Run a member of the fleet",
		Long:  "Runs a daemon until SIGINT or SIGTERM. --bootstrap creates a new cluster, once; --join-token-file joins an existing one.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, err := config.Load(config.Options{
				File: file, Environ: os.Environ(), Flags: givenFlags(cmd), Search: config.SearchPath(),
			})
			if err != nil {
				return err
			}
			logger := newLogger(cmd.ErrOrStderr(), loaded.Log)
			for _, w := range loaded.Warnings {
				logger.Warn(w)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			context.AfterFunc(ctx, stop) // the next signal ends the process at once
			token, err := readToken(tokenFile)
			if err != nil {
				return err
			}
			return run(ctx, loaded.Config, Start{Bootstrap: bootstrap, Token: token}, version, logger)
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

// run opens what the configuration names, runs the daemon until ctx ends or it fails, and stops it.
func run(ctx context.Context, cfg config.Config, start Start, version server.Version, logger *slog.Logger) (err error) {
	out := Outside{Logger: logger, Now: time.Now, Tracer: trace.Discard, Version: version, Exit: exitProcess(logger), Probe: echo.DialUDP}
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
	err = d.Start(ctx)
	if err == nil {
		select {
		case <-ctx.Done():
			logger.Info("stopping")
		case err = <-d.Failed():
		}
	}
	return errors.Join(err, stopInTime(ctx, d.Stop, out.Exit))
}

// stopInTime stops what has started, in order; when that takes longer than it may,
// exit ends the process.
func stopInTime(ctx context.Context, inOrder func(context.Context) error, exit func(code int, reason string)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopBound)
	defer cancel()
	overdue := time.AfterFunc(stopBound+stopGrace, func() { exit(exitStuck, errStuck.Error()) })
	defer overdue.Stop()
	return inOrder(ctx)
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

// exitProcess ends the process at once. It is for a process that cannot end its
// own work safely: another node takes over.
func exitProcess(logger *slog.Logger) func(int, string) {
	return func(code int, reason string) {
		logger.Error("ending this process", "reason", reason, "exit", code)
		os.Exit(code)
	}
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
