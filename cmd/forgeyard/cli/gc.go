// forgeyard gc: what the garbage collection of stored bytes found, and starting one.

package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/roles/artifact"
)

const gcPath = "/v1/gc"

// gcTimeout bounds a collection that is waited for; --timeout does when it is given.
const gcTimeout = 10 * time.Minute

func (a *app) gcCommand() *cobra.Command {
	c := group(&cobra.Command{
		Use: "gc", Short: "See and start the collection of stored bytes that nothing names",
		Long: "Logs, sources and artifacts that no run names are deleted after a grace period. One collection runs in the whole fleet at a time.",
	})
	c.AddCommand(a.gcStatusCommand(), a.gcRunCommand())
	return c
}

func (a *app) gcStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the fleet's last collection, and what retention removed", Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			var d artifact.Collection
			if err := a.get(c.Context(), gcPath, &d); err != nil {
				return err
			}
			return a.print(gcResult(d, a.nodeName(c.Context(), d.Node)))
		},
	}
}

func (a *app) gcRunCommand() *cobra.Command {
	var dry bool
	c := &cobra.Command{
		Use: "run", Short: "Collect now, and wait for the end", Args: noArguments,
		Example: "  forgeyard gc run --dry-run",
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("timeout") {
				a.timeout = gcTimeout
			}
			var d artifact.Collection
			err := a.call(c.Context(), func(ctx context.Context, c *client.Client) error {
				return c.Post(ctx, gcPath, "", artifact.CollectRequest{DryRun: dry}, &d)
			})
			if err != nil {
				return err
			}
			return a.print(gcResult(d, a.nodeName(c.Context(), d.Node)))
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "only say what would be deleted")
	return c
}

func gcResult(d artifact.Collection, node string) result {
	return result{doc: d, names: []string{"gc/last"}, draw: func(p *painter) {
		drawCollection(p, d, node)
		drawRetention(p, d.Retention)
	}}
}

func drawCollection(p *painter, d artifact.Collection, node string) {
	r := d.Last
	if r == nil {
		p.line("no collection has been recorded; start one: forgeyard gc run")
		return
	}
	verb := "deleted"
	if r.DryRun {
		verb = "would delete"
	}
	n := r.Deleted
	if r.DryRun {
		n = r.Garbage
	}
	p.line("%s %d of %d blobs, %s of %s", verb, n, r.Blobs, bytesText(r.Reclaimed), bytesText(r.Bytes))
	if node != "" {
		p.line("  made by     %s", node)
	}
	p.line("  began       %s", stamp(r.At))
	if !d.Finished.IsZero() {
		p.line("  ended       %s", stamp(d.Finished))
	}
	p.hanging(14, "  garbage     %d blobs that nothing names and that are past the grace period", r.Garbage)
	p.line("  leftovers   %d of interrupted calls", r.Leftovers)
}

// drawRetention tells how many rows left the database; tables that lost none are left out.
func drawRetention(p *painter, r *artifact.Retention) {
	if r == nil {
		return
	}
	var parts []string
	for _, table := range slices.Sorted(maps.Keys(r.Removed)) {
		if n := r.Removed[table]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, table))
		}
	}
	p.prose("retention removed %s", cmp.Or(strings.Join(parts, ", "), "no rows yet"))
	if r.Passed != nil {
		p.line("  last pass   %s", stamp(*r.Passed))
	}
}
