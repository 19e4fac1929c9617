// Package dev is `forgeyard dev`: a whole fleet on this machine, and the commands that break and mend it.
package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// agentCount is a flag's value: at least 1, for a fleet without an agent runs no job.
type agentCount int

func (n *agentCount) String() string { return strconv.Itoa(int(*n)) }
func (n *agentCount) Type() string   { return "number" }

func (n *agentCount) Set(text string) error {
	count, err := strconv.Atoi(text)
	if err != nil || count < 1 {
		return errors.New("a fleet without an agent runs no job; name at least 1")
	}
	*n = agentCount(count)
	return nil
}

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
	opts.agents = 2
	cmd.Flags().Var(&opts.agents, "agents", "number of agents")
	cmd.Flags().IntVar(&opts.port, "port", fleet.DevPorts().Cluster, "the first node's port; the others follow from it, and taken ones are passed over; 0 picks any free ports")
	for _, verb := range []struct {
		use, short, done string
		meant            []string
	}{
		{"kill", "End a daemon at once (SIGKILL)", "killed", []string{"stop"}},
		{"pause", "Stop a daemon's process (SIGSTOP), as a long pause would", "paused", nil},
		{"resume", "Wake a paused daemon, or start a killed one again", "resumed", []string{"start", "restart", "continue"}},
		{"partition", "Cut a daemon off from all other daemons and the agents", "cut off", []string{"cut", "isolate"}},
		{"heal", "Restore a daemon's links", "healed", nil},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: verb.use + " NODE", Short: verb.short, Args: cobra.ExactArgs(1), SuggestFor: verb.meant,
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

// runningFleet asks the fleet that this user runs now how it is, whichever the shell's settings name.
func runningFleet() (Status, error) {
	c, err := connect()
	if errors.Is(err, errEnded) {
		c, err = connectTo(pointedAt())
	}
	if err != nil {
		return Status{}, err
	}
	return c.status()
}

func statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the processes of the running fleet", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := runningFleet()
			if err != nil {
				return err
			}
			return printStatus(cmd.OutOrStdout(), s, outputFormat(cmd))
		},
	}
}

// outputFormat is what -o asks for, which is a flag of the whole command tree.
func outputFormat(cmd *cobra.Command) string {
	if f := cmd.Flag("output"); f != nil {
		return f.Value.String()
	}
	return ""
}

// printStatus prints the table for people, JSON also where YAML is asked for
// (it is YAML), or the daemons' names.
func printStatus(w io.Writer, s Status, format string) error {
	switch format {
	case "json", "yaml":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(s)
	case "name":
		for _, n := range s.Nodes {
			fmt.Fprintf(w, "node/%s\n", n.Name)
		}
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tSTATE\tPID\tLINKS\tENDPOINT")
	for _, n := range s.Nodes {
		links := "ok"
		if n.Cut {
			links = "cut"
		}
		pid := "-"
		if n.PID != 0 {
			pid = strconv.Itoa(n.PID)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", n.Name, n.State, pid, links, n.Endpoint)
	}
	fmt.Fprintln(t, logsLine(s.Dir))
	fmt.Fprintln(t, "Admin       unix://"+s.Dir+"/node-*/data/admin.sock")
	return t.Flush()
}

func envCommand() *cobra.Command {
	return &cobra.Command{
		Use: "env", Short: "Print shell settings: eval \"$(forgeyard dev env)\"", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := runningFleet()
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
	agents  agentCount
	port    int
}

// ports are the fleet's: the documented ones moved so that the first is base; 0 means any free ones.
func ports(base int) fleet.Ports {
	if base == 0 {
		return fleet.Ports{}
	}
	p := fleet.DevPorts()
	move := base - p.Cluster
	return fleet.Ports{Cluster: base, Agents: p.Agents + move, HTTP: p.HTTP + move, Step: p.Step}
}

// run is `forgeyard dev` in the foreground: start, banner, wait, stop, say what was removed.
func run(ctx context.Context, out io.Writer, o runOptions) (err error) {
	left, err := sweep()
	if err != nil {
		return fmt.Errorf("remove what a killed fleet left: %w", err)
	}
	dir, temporary, err := makeDir(o.keep)
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "forgeyard dev: 3 daemons, %d agents and a PostgreSQL on this machine\n%s\n", o.agents, keepText(temporary, dir))
	if left != "" {
		fmt.Fprintf(out, "  - removed %s, which a killed fleet had left\n", left)
	}
	f, err := fleet.Start(ctx, fleet.Options{
		Dir: dir, Binary: exe, Agents: int(o.agents), Ports: ports(o.port), Progress: progressPrinter(out),
	})
	switch {
	case err != nil && ctx.Err() != nil && temporary: // Ctrl-C while it started
		return errors.Join(ctx.Err(), os.RemoveAll(dir))
	case err != nil:
		return errors.Join(err, fmt.Errorf("the logs are kept in %s", dir))
	}
	defer func() { err = errors.Join(err, end(out, f, temporary)) }()
	control, err := openControl(f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, control.close()) }()
	if err := point(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unpoint(dir)) }()
	printPlaces(out, f, exe)
	if o.example {
		if err := runExample(ctx, out, f); err != nil && ctx.Err() == nil {
			fmt.Fprintf(out, "  ! example run: %v\n", err)
		}
	}
	if ctx.Err() == nil {
		printBanner(ctx, out, f)
	}
	<-ctx.Done()
	fmt.Fprintln(out, "\nstopping agents, daemons and PostgreSQL")
	return nil
}

// end stops the fleet and says what became of its directory.
func end(out io.Writer, f *fleet.Fleet, temporary bool) error {
	err := stopFleet(f)
	if !temporary {
		fmt.Fprintf(out, "stopped; kept %s\n", f.Dir())
		return err
	}
	err = errors.Join(err, os.RemoveAll(f.Dir()))
	fmt.Fprintf(out, "stopped; removed %s\n", f.Dir())
	return err
}

func stopFleet(f *fleet.Fleet) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopBound)
	defer cancel()
	return f.Stop(ctx)
}
