// Package cli is the command line: every command, one output contract, one set of exit codes.
//
// This file: the command tree.
package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
)

// Deps are the parts of the command tree that live elsewhere. A nil command is left out.
type Deps struct {
	Daemon *cobra.Command
	Agent  *cobra.Command
	Dev    *cobra.Command
	Demo   *cobra.Command
	// Version is the build's version, "dev" when empty.
	Version string
}

// Run executes one command line and returns its exit code. It is everything
// main does: args are without the program's name.
func Run(ctx context.Context, io IO, deps Deps, args []string) int {
	a := &app{io: io}
	root := a.tree(deps)
	root.SetArgs(args)
	defer a.close()
	if ran, err := root.ExecuteContextC(ctx); err != nil {
		if wrong := (*usageError)(nil); errors.As(err, &wrong) && !a.structured() {
			a.format = cmp.Or(wantedFormat(args), a.format)
		}
		return a.report(cobraError(ran, err))
	}
	return ExitOK
}

// New returns the command tree, for documentation and for tests that walk it.
func New(deps Deps) *cobra.Command { return (&app{io: System()}).tree(deps) }

// app is what the commands of one invocation share.
type app struct {
	io        IO
	format    string
	colour    string
	noColour  bool
	noInput   bool
	endpoints []string
	timeout   time.Duration
	shown     credentials

	calling sync.Mutex
	api     *client.Client // once it is needed
}

func (a *app) tree(deps Deps) *cobra.Command {
	root := &cobra.Command{
		Use:   "forgeyard",
		Short: "A CI/CD control plane that keeps its own quorum",
		Long:  "Forgeyard runs jobs on agents through a fleet of identical daemons that elect an owner for every responsibility.",
	}
	group(root)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(a.io.In)
	root.SetOut(a.io.Out)
	root.SetErr(a.io.Err)
	root.SetFlagErrorFunc(flagError)
	a.globals(root)
	add(root, "Processes:", deps.Dev, deps.Demo, deps.Daemon, deps.Agent)
	add(root, "Use the fleet:", a.runCommand(), a.queuesCommand(), a.eventsCommand())
	add(root, "Operate the fleet:", a.clusterCommand(), a.agentsCommand(), a.actorsCommand(), a.gcCommand())
	add(root, "Set up:", a.pkiCommand(), a.tokenCommand(), a.configCommand())
	add(root, "", a.explainCommand(), a.versionCommand(deps.Version))
	fitHelp(root, a.io.Width)
	return root
}

// globals are the flags that every command has.
func (a *app) globals(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVarP(&a.format, "output", "o", formatTable, "output format: "+strings.Join(formats(), "|"))
	f.StringVar(&a.colour, "color", "auto", "colour: auto|always|never")
	f.BoolVar(&a.noColour, "no-color", false, "same as --color=never")
	f.BoolVar(&a.noInput, "no-input", false, "never ask")
	f.StringArrayVar(&a.endpoints, "endpoint", nil, "daemon to call: http(s)://host:port or unix:///path; repeat it to try more (default $FORGEYARD_ENDPOINTS, then "+client.DefaultEndpoint+")")
	f.DurationVar(&a.timeout, "timeout", 10*time.Second, "how long a call may take in all")
	a.shown.flags(f)
	completeFlag(root, "output", formats())
	completeFlag(root, "color", []string{"auto", "always", "never"})
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return a.checkGlobals(c) }
}

func (a *app) checkGlobals(c *cobra.Command) error {
	if !slices.Contains(formats(), a.format) {
		bad := a.format
		a.format = formatTable
		return usagef("choose one of "+strings.Join(formats(), ", "), "unknown output format %q", bad)
	}
	if a.noColour {
		a.colour = "never"
	}
	if !slices.Contains([]string{"auto", "always", "never"}, a.colour) {
		return usagef("choose one of auto, always, never", "unknown colour mode %q", a.colour)
	}
	if a.timeout <= 0 {
		return usagef("for example --timeout 10s", "%s: --timeout must be above 0", c.CommandPath())
	}
	return nil
}

// client is the one client of this invocation, which remembers the daemon that
// answered; for the endpoints and credentials of the flags, the environment or the default.
// Reading their files ends with ctx.
func (a *app) client(ctx context.Context) (*client.Client, error) {
	a.calling.Lock()
	defer a.calling.Unlock()
	if a.api != nil {
		return a.api, nil
	}
	security, err := untilInterrupted(ctx, func() (client.Security, error) { return a.shown.read(a.io) })
	if err != nil {
		return nil, err
	}
	c, err := client.NewSecured(a.endpointNames(), security)
	if err != nil {
		return nil, usagef("an endpoint is http(s)://host:port or unix:///path", "%s", err.Error())
	}
	a.api = c
	return c, nil
}

func (a *app) close() {
	if a.api != nil {
		a.api.Close()
	}
}

// endpointNames are the endpoints of the flags, the environment or the default.
func (a *app) endpointNames() []string {
	list := slices.Clone(a.endpoints)
	if len(list) == 0 {
		for name := range strings.SplitSeq(a.io.getenv("FORGEYARD_ENDPOINTS"), ",") {
			if name = strings.TrimSpace(name); name != "" {
				list = append(list, name)
			}
		}
	}
	if len(list) == 0 {
		list = []string{client.DefaultEndpoint}
	}
	return list
}

// call runs one request within --timeout.
func (a *app) call(ctx context.Context, do func(context.Context, *client.Client) error) error {
	c, err := a.client(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	return do(ctx, c)
}

// add puts commands under a heading of the help; an empty heading is cobra's own.
func add(parent *cobra.Command, heading string, children ...*cobra.Command) {
	for _, c := range children {
		if c == nil {
			continue
		}
		if heading != "" && !parent.ContainsGroup(heading) {
			parent.AddGroup(&cobra.Group{ID: heading, Title: heading})
		}
		c.GroupID = heading
		parent.AddCommand(c)
	}
}

// group makes a command that only holds others: alone it shows its help, with
// an unknown word it fails, which cobra by itself would not.
func group(c *cobra.Command) *cobra.Command {
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		hint := "see: " + c.CommandPath() + " --help"
		if s := c.SuggestionsFor(args[0]); len(s) > 0 {
			hint = "did you mean: " + c.CommandPath() + " " + s[0]
		}
		return usagef(hint, "unknown command %q for %q", args[0], c.CommandPath())
	}
	c.SuggestionsMinimumDistance = 2
	return c
}
