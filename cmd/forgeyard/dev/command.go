// Package dev is `forgeyard dev`: a whole fleet on this machine, and the commands that break and mend it.
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// stopBound is how long Ctrl-C waits for daemons, agents and PostgreSQL.
const stopBound = 20 * time.Second

// Command returns `forgeyard dev` with its sub-commands.
func Command() *cobra.Command {
	var opts runOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run three daemons, two agents and a PostgreSQL on this machine",
		Long:  "Runs a real fleet of processes on this machine until Ctrl-C. Everything is temporary unless --keep names a directory.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			return run(ctx, cmd.OutOrStdout(), opts)
		},
	}
	cmd.Flags().StringVar(&opts.keep, "keep", "", "keep everything in this new directory")
	cmd.Flags().BoolVar(&opts.example, "example", false, "submit the example run once the fleet is ready (needs the module's folder as working directory)")
	cmd.Flags().IntVar(&opts.agents, "agents", 2, "number of agents")
	for _, verb := range []struct{ use, short, done string }{
		{"kill", "End a daemon at once (SIGKILL)", "killed"},
		{"pause", "Stop a daemon's process (SIGSTOP), as a long pause would", "paused"},
		{"resume", "Wake a paused daemon, or start a killed one again", "resumed"},
		{"partition", "Cut a daemon off from all other daemons and the agents", "cut off"},
		{"heal", "Restore a daemon's links", "healed"},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: verb.use + " NODE", Short: verb.short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				c, err := connect()
				if err != nil {
					return err
				}
				if err := c.act(verb.use, args[0]); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s. See it: forgeyard cluster status\n", args[0], verb.done)
				return nil
			},
		})
	}
	cmd.AddCommand(statusCommand(), envCommand())
	return cmd
}

func statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the processes of the running fleet", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := connect()
			if err != nil {
				return err
			}
			s, err := c.status()
			if err != nil {
				return err
			}
			return printStatus(cmd.OutOrStdout(), s)
		},
	}
}

func printStatus(w io.Writer, s Status) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tSTATE\tPID\tLINKS\tENDPOINT\tLOG")
	for _, n := range s.Nodes {
		links := "ok"
		if n.Cut {
			links = "cut"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\n", n.Name, n.State, n.PID, links, n.Endpoint, n.Log)
	}
	return t.Flush()
}

func envCommand() *cobra.Command {
	return &cobra.Command{
		Use: "env", Short: "Print shell settings: eval \"$(forgeyard dev env)\"", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := connect()
			if err != nil {
				return err
			}
			s, err := c.status()
			if err != nil {
				return err
			}
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "export FORGEYARD_DEV=%q\nexport FORGEYARD_ENDPOINTS=%q\nexport PATH=%q:\"$PATH\"\n",
				s.Dir, strings.Join(s.Endpoints, ","), filepath.Dir(exe))
			return nil
		},
	}
}

type runOptions struct {
	keep    string
	example bool
	agents  int
}

// run is `forgeyard dev` in the foreground: start, banner, wait, stop, say what was removed.
func run(ctx context.Context, out io.Writer, o runOptions) (err error) {
	dir, temporary, err := makeDir(o.keep)
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "forgeyard dev  - 3 nodes + PostgreSQL on this machine (%s)\n", keepText(temporary, dir))
	f, err := fleet.Start(ctx, fleet.Options{
		Dir: dir, Binary: exe, Agents: o.agents, Ports: fleet.DevPorts(), Progress: progressPrinter(out),
	})
	if err != nil {
		if temporary {
			err = errors.Join(err, fmt.Errorf("the logs are kept in %s", dir))
		}
		return err
	}
	if err := os.WriteFile(pointerFile(), []byte(dir), 0o600); err != nil {
		return errors.Join(err, stopFleet(f))
	}
	control := make(chan error, 1)
	controlCtx, endControl := context.WithCancel(context.WithoutCancel(ctx))
	go func() { control <- serveControl(controlCtx, f) }()
	defer func() {
		fmt.Fprintln(out, "\nstopping agents, daemons and PostgreSQL")
		endControl()
		err = errors.Join(err, <-control, stopFleet(f), os.Remove(pointerFile()))
		if temporary {
			err = errors.Join(err, os.RemoveAll(dir))
			fmt.Fprintf(out, "stopped; removed %s\n", dir)
		} else {
			fmt.Fprintf(out, "stopped; kept %s\n", dir)
		}
	}()
	if o.example {
		if err := runExample(ctx, out, f); err != nil && ctx.Err() == nil {
			fmt.Fprintf(out, "  ! example run: %v\n", err)
		}
	}
	printBanner(out, f, exe)
	<-ctx.Done()
	return nil
}

func makeDir(keep string) (dir string, temporary bool, err error) {
	if keep == "" {
		dir, err = os.MkdirTemp("", "forgeyard-dev-")
		return dir, true, err
	}
	if dir, err = filepath.Abs(keep); err != nil {
		return "", false, err
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return "", false, fmt.Errorf("%s is not empty: --keep wants a new directory", dir)
	}
	return dir, false, os.MkdirAll(dir, 0o700)
}

func keepText(temporary bool, dir string) string {
	if temporary {
		return "temporary; use --keep DIR to keep"
	}
	return "kept in " + dir
}

func stopFleet(f *fleet.Fleet) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopBound)
	defer cancel()
	return f.Stop(ctx)
}
