// Package agent is `forgeyard agent`: a runner that executes what daemons lease to it.
package agent

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	charm "github.com/charmbracelet/log"
	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// protocolMin and protocolMax are what this build speaks with daemons.
const protocolMin, protocolMax = 1, 1

// Command returns `forgeyard agent`.
func Command(build string) *cobra.Command {
	cfg := runner.AgentConfig{Build: build}
	var cert, key, ca string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run an agent that executes jobs",
		Long:  "Runs an agent until SIGINT or SIGTERM. It needs a certificate from `forgeyard pki issue agent` and the agents' addresses of one or more daemons.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			identity, err := pki.Load(cert, key, ca)
			if err != nil {
				return err
			}
			if err := identity.Usable(pki.KindAgent, time.Now()); err != nil {
				return err
			}
			cfg.Logger = slog.New(charm.NewWithOptions(cmd.ErrOrStderr(), charm.Options{ReportTimestamp: true, TimeFormat: time.RFC3339Nano}))
			endpoint, err := dialer(identity, cfg.Logger)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, endpoint.Close()) }()
			// Every agent begins with another daemon, so that the loss of one daemon is noticed by some agents only.
			rand.Shuffle(len(cfg.Endpoints), func(i, j int) {
				cfg.Endpoints[i], cfg.Endpoints[j] = cfg.Endpoints[j], cfg.Endpoints[i]
			})
			cfg.Dialer, cfg.Executor = runner.QUIC{Endpoint: endpoint}, runner.Process{}
			a, err := runner.NewAgent(cfg)
			if err != nil {
				return err
			}
			cfg.Logger.Info("agent started", "agent", identity.Subject().ID, "session", a.Session(), "slots", cfg.Slots)
			return a.Run(ctx)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&cfg.Endpoints, "endpoints", []string{"127.0.0.1:7444"}, "agents' addresses of daemons, tried in random order")
	f.StringVar(&cfg.Dir, "dir", "/var/lib/forgeyard-agent", "the agent's own directory")
	f.IntVar(&cfg.Slots, "slots", 1, "jobs that run at a time")
	f.StringSliceVar(&cfg.Labels, "label", nil, "labels that jobs may ask for")
	f.StringVar(&cert, "cert", "agent.crt", "the agent's certificate")
	f.StringVar(&key, "key", "agent.key", "the agent's private key")
	f.StringVar(&ca, "ca", "ca.crt", "certificate of the cluster's authority")
	return cmd
}

// idle is how long a daemon may be silent before the agent turns to another one.
// A daemon whose machine died holds up the agent's free slots for as long; a
// link broken too early costs one more handshake.
const idle = 4 * time.Second

// dialer opens a socket that only dials.
func dialer(identity *pki.Identity, logger *slog.Logger) (*transport.Endpoint, error) {
	conn, err := net.ListenUDP("udp", nil)
	if err != nil {
		return nil, err
	}
	subject := identity.Subject()
	return transport.Listen(transport.Config{
		Conn: conn, Identity: identity, Limits: transport.Limits{Idle: idle}, Logger: logger, Now: time.Now,
		Hello: func() transport.Hello {
			return transport.Hello{Cluster: subject.Cluster, ID: subject.ID, ProtocolMin: protocolMin, ProtocolMax: protocolMax}
		},
	})
}
