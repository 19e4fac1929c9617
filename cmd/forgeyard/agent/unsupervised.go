// How a harness makes the jobs of real agents cheap.

package agent

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"syscall"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// unsupervisedEnv, set to 1, lets an agent run steps as its own children. A
// supervisor costs tens of milliseconds of CPU for each job, which a fleet that
// is tested with thousands of leases on two cores cannot spare. It is for
// harnesses only, where jobs are known: a job that leaves its process group is
// not found again, and nothing bounds it.
const unsupervisedEnv = "FORGEYARD_UNSUPERVISED"

func unsupervised(ctx context.Context, t runner.Task, output io.Writer) runner.Exit {
	for _, step := range t.Steps {
		cmd := exec.CommandContext(ctx, step.Argv[0], step.Argv[1:]...)
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = t.Dir, runner.Environment(t), output, output
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		err := cmd.Run()
		var ended *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return runner.Exit{}
		case err != nil && !errors.As(err, &ended):
			return runner.Exit{Err: err}
		case err != nil:
			code := ended.ExitCode()
			return runner.Exit{Code: &code, Step: step.Name}
		}
	}
	code := 0
	return runner.Exit{Code: &code}
}
