// What an agent's process does beside running the agent: supervise one job, and heed a second signal.

package agent

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// superviseName is the command of the process between the agent and a job's processes.
const superviseName = "supervise"

func supervise() *cobra.Command {
	return &cobra.Command{
		Use: superviseName, Hidden: true, Args: cobra.NoArgs,
		Short: "Run one job's processes for an agent (started by it)",
		RunE:  func(*cobra.Command, []string) error { return runner.Supervise() },
	}
}

// onSecondSignal calls hurry when the process is told to end once more; the first signal
// ends the command's context, and the third one, which nobody takes, the process.
func onSecondSignal(hurry func()) (stop func()) {
	signals, quit, ended := make(chan os.Signal, 2), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer close(ended)
		for range 2 {
			select {
			case <-signals:
			case <-quit:
				return
			}
		}
		signal.Stop(signals)
		hurry()
	}()
	return func() { signal.Stop(signals); close(quit); <-ended }
}
