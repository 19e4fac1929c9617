// Completion of names in a shell: asked of the fleet, briefly and silently.

package cli

import (
	"context"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// completionTime is how long a person who pressed Tab waits at most.
const completionTime = 300 * time.Millisecond

// ask reads for a completion. Whatever fails, nothing is offered and nothing said.
func (a *app) ask(c *cobra.Command, path string, query url.Values, out any) bool {
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	api, err := a.client(ctx)
	if err != nil {
		return false
	}
	return api.Get(ctx, path, query, out) == nil
}

func (a *app) completeRun(c *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var l runner.RunListDocument
	if len(given) > 0 || !a.ask(c, "/v1/runs", url.Values{"limit": {"50"}}, &l) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for _, r := range l.Runs {
		out = append(out, cobra.CompletionWithDesc(r.ID, clean(r.Name+" "+string(r.State))))
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// completeRunJob completes RUN and then JOB.
func (a *app) completeRunJob(c *cobra.Command, given []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(given) == 0 {
		return a.completeRun(c, given, typed)
	}
	var d runner.RunDocument
	if len(given) > 1 || !a.ask(c, runPath(given[0]), nil, &d) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for _, j := range d.Jobs {
		out = append(out, cobra.CompletionWithDesc(clean(j.Name), string(j.State)))
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

func (a *app) completeAgent(c *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var l runner.AgentListDocument
	if len(given) > 0 || !a.ask(c, "/v1/agents", nil, &l) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for _, x := range l.Agents {
		out = append(out, cobra.CompletionWithDesc(x.ID, string(x.State)))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeFlag offers fixed values of a flag.
func completeFlag(c *cobra.Command, name string, values []string) {
	_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that does not exist
}
