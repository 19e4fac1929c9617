// Package agent is `forgeyard agent`: a runner that executes what daemons lease to it.
package agent

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"time"

	charm "github.com/charmbracelet/log"
	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/cmd/forgeyard/asynclog"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/watchdog"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// protocolMin and protocolMax are what this build speaks with daemons.
const protocolMin, protocolMax = 1, 1

// stopBound is what an agent has to end beyond its jobs' grace before its process ends
// without it: its jobs' supervisors end with it.
const stopBound = 20 * time.Second

// logBound is how long the last lines of the log may take.
const logBound = time.Second

// Command returns `forgeyard agent`.
func Command(build string) *cobra.Command {
	cfg := runner.AgentConfig{Build: build}
	var cert, key, ca string
	var limits runner.Limits
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run an agent that executes jobs",
		Long:  "Runs an agent until SIGINT or SIGTERM; then running jobs have --grace to end, a second signal ends them at once, a third one the agent. It needs a certificate from `forgeyard pki issue agent` and the agents' addresses of one or more daemons.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx := cmd.Context()
			lines := asynclog.New(cmd.ErrOrStderr(), func(lost uint64) {
				cfg.Logger.Warn("lines of this log are missing: nobody took them", "lines", lost)
			})
			defer lines.Close(logBound)
			cfg.Logger = slog.New(charm.NewWithOptions(lines, charm.Options{ReportTimestamp: true, TimeFormat: time.RFC3339Nano}))
			exit := watchdog.Exit(func(code int, reason string) {
				cfg.Logger.Error("ending this process", "reason", reason, "exit", code)
				lines.Flush(logBound)
			})
			watch := watchdog.Arm(ctx, cfg.Grace+stopBound, exit)
			defer watch.Disarm()
			watch.Enter("reading the certificate")
			identity, err := pki.Load(cert, key, ca)
			if err != nil {
				return guided(err)
			}
			if err := identity.Usable(pki.KindAgent, time.Now()); err != nil {
				return err
			}
			watch.Enter("opening sockets and files")
			endpoint, err := dialer(identity, cfg.Logger)
			if err != nil {
				return err
			}
			defer func() {
				watch.Enter("closing the socket")
				err = errors.Join(err, endpoint.Close())
			}()
			// Every agent begins with another daemon, so that the loss of one daemon is noticed by some agents only.
			rand.Shuffle(len(cfg.Endpoints), func(i, j int) {
				cfg.Endpoints[i], cfg.Endpoints[j] = cfg.Endpoints[j], cfg.Endpoints[i]
			})
			// The link in /proc stays true when the binary is replaced under a running agent.
			processes := runner.NewPrestarted(runner.Process{Supervisor: []string{"/proc/self/exe", cmd.Name(), superviseName}, Limits: limits})
			defer func() {
				watch.Enter("ending the supervisor that waits for a job")
				processes.Close()
			}()
			cfg.Executor, cfg.Disk = processes, limits.Disk
			if os.Getenv(unsupervisedEnv) == "1" {
				cfg.Executor = runner.ExecutorFunc(unsupervised)
			}
			hurried, hurry := context.WithCancel(context.WithoutCancel(ctx))
			defer hurry()
			hurriedWatch := watchdog.Arm(hurried, stopBound, exit)
			defer hurriedWatch.Disarm()
			cfg.Phase = func(part string) { watch.Enter(part); hurriedWatch.Enter(part) }
			cfg.Dialer = runner.QUIC{Endpoint: endpoint}
			a, err := runner.NewAgent(cfg)
			if err != nil {
				return err
			}
			cfg.Logger.Info("agent started", "agent", identity.Subject().ID, "session", a.Session(), "slots", cfg.Slots)
			defer onSecondSignal(func() { a.Hurry(); hurry() })()
			return a.Run(ctx)
		},
	}
	cmd.AddCommand(supervise())
	f := cmd.Flags()
	f.StringSliceVar(&cfg.Endpoints, "endpoints", []string{"127.0.0.1:7444"}, "agents' addresses of daemons, tried in random order")
	f.StringVar(&cfg.Dir, "dir", "/var/lib/forgeyard-agent", "the agent's own directory")
	f.IntVar(&cfg.Slots, "slots", 1, "jobs that run at a time")
	f.StringSliceVar(&cfg.Labels, "label", nil, "labels that jobs may ask for")
	f.DurationVar(&cfg.Grace, "grace", 30*time.Second, "how long running jobs may go on once the agent shall stop")
	f.IntVar(&limits.Processes, "max-processes", 1024, "processes that one job may have at a time")
	f.Int64Var(&limits.Disk, "max-disk", 10<<30, "bytes that one job may have in its working directory")
	f.Int64Var(&limits.DiskFree, "min-disk-free", 256<<20, "bytes that stay free on the disk of --dir: below them jobs that hold much of it are killed")
	f.StringVar(&cert, "cert", "agent.crt", "the agent's certificate")
	f.StringVar(&key, "key", "agent.key", "the agent's private key")
	f.StringVar(&ca, "ca", "ca.crt", "certificate of the cluster's authority")
	return cmd
}

// guided tells whoever starts an agent without its files which ones it takes and what writes them.
func guided(err error) error {
	var unread *pki.Error
	if !errors.As(err, &unread) || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	e := *unread
	e.Message = "an agent needs a certificate, its key and the authority's certificate"
	e.Hint = "write them where ca.key is: forgeyard pki issue agent NAME; then name them here with --cert, --key and --ca, and daemons with --endpoints"
	return &e
}

// How soon an agent leaves a silent daemon. When every agent hangs on a daemon
// that died, nobody takes work until they have left: a crash may cost 3 s in all,
// and idle, counted from the first probe that stays unanswered, and keepAlive come
// before the new link. One lost probe costs nothing, as QUIC repeats it within
// milliseconds; an agent's machine that is too busy for 1.5 s costs a handshake and
// a resync, while its jobs run on, for leases belong to the agent and not to the link.
const (
	idle      = 1500 * time.Millisecond
	keepAlive = idle / 3
)

// dialer opens a socket that only dials.
func dialer(identity *pki.Identity, logger *slog.Logger) (*transport.Endpoint, error) {
	conn, err := net.ListenUDP("udp", nil)
	if err != nil {
		return nil, err
	}
	subject := identity.Subject()
	return transport.Listen(transport.Config{
		Conn: conn, Identity: identity, Limits: transport.Limits{Idle: idle, KeepAlive: keepAlive}, Logger: logger, Now: time.Now,
		Hello: func() transport.Hello {
			return transport.Hello{Cluster: subject.Cluster, ID: subject.ID, ProtocolMin: protocolMin, ProtocolMax: protocolMax}
		},
	})
}
