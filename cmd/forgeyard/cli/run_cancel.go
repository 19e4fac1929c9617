// forgeyard run cancel: ask for the end of a run or of one of its jobs.

package cli

import (
	"github.com/spf13/cobra"
)

func (a *app) runCancelCommand() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "cancel RUN [JOB]", Short: "Ask for the end of a run, or of one of its jobs", Args: args(1, 2, "RUN [JOB]"),
		Long:              "Ask for the end of a run, or of one of its jobs. What waits ends at once; what runs is asked to stop, and killed\nwhen it does not. Asking twice does no harm.",
		ValidArgsFunction: a.completeRunJob,
		RunE: func(c *cobra.Command, given []string) error {
			id, err := a.runID(c.Context(), given[0])
			if err != nil {
				return err
			}
			job := ""
			if len(given) == 2 {
				d, err := a.run(c.Context(), id)
				if err != nil {
					return err
				}
				j, err := jobOf(d, given[1])
				if err != nil {
					return err
				}
				job = j.Name
			}
			d, err := a.cancelRun(c.Context(), id, job, reason)
			if err != nil {
				return err
			}
			return a.print(result{doc: d, names: []string{"run/" + d.ID}, draw: func(p *painter) {
				what := "run " + d.ID
				if job != "" {
					what = "job " + job + " of " + what
				}
				p.line("asked for the end of %s", what)
				p.line("it is %s, %d of %d jobs have ended", p.runState(string(d.State)), d.Counts.Total()-d.Counts.Open(), d.Counts.Total())
				if d.Counts.Open() > 0 {
					p.line("next: forgeyard run show %s", d.ID)
				}
			}})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return c
}
