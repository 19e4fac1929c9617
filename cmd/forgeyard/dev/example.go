// The example run of `forgeyard dev --example`: this very module, vetted and built by the fleet.

package dev

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/forgeyard/forgeyard/cluster/config/ron"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/examples"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// runExample submits the example, follows it to its end and says how it went.
func runExample(ctx context.Context, out io.Writer, f *fleet.Fleet) error {
	spec, tree, err := exampleSpec()
	if err != nil {
		return err
	}
	if spec.Source, err = f.Upload(ctx, tree); err != nil {
		return err
	}
	run, err := f.Submit(ctx, 1, spec)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  > example    run %s: %d jobs that check this module; follow it with: forgeyard run logs -f %s\n", run.ID, len(spec.Jobs), run.ID)
	if run, err = f.WaitRun(ctx, run.ID); err != nil {
		return err
	}
	for _, j := range run.Jobs {
		fmt.Fprintf(out, "  %s %-10s %-9s %5.1fs   %s\n", mark(j.State), j.Name, j.State, took(j).Seconds(), lastWords(j))
	}
	if run.State != runner.RunSucceeded {
		return fmt.Errorf("run %s %s; see it with: forgeyard run show %s", run.ID, run.State, run.ID)
	}
	return nil
}

// exampleSpec is the example with the working directory as its source, and with
// what the Go command needs: agents pass nothing of their own environment on.
func exampleSpec() (spec runner.RunSpec, tree string, err error) {
	if tree, err = os.Getwd(); err != nil {
		return spec, "", err
	}
	if _, err := os.Stat(filepath.Join(tree, "go.mod")); err != nil {
		return spec, "", fmt.Errorf("the example checks the module in the working directory, and there is none in %s", tree)
	}
	v, err := ron.Parse("pipeline.ron", examples.Pipeline)
	if err != nil {
		return spec, "", err
	}
	if _, err := ron.Decode(v, &spec); err != nil {
		return spec, "", err
	}
	env := map[string]string{"HOME": os.Getenv("HOME")}
	for _, kv := range os.Environ() {
		if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "GO") {
			env[name] = value
		}
	}
	for i := range spec.Jobs {
		own := spec.Jobs[i].Env
		spec.Jobs[i].Env = maps.Clone(env)
		maps.Copy(spec.Jobs[i].Env, own)
	}
	return spec, tree, nil
}

func mark(s runner.JobState) string {
	if s == runner.JobSucceeded {
		return "+"
	}
	return "!"
}

// took is how long the job's last attempt ran.
func took(j runner.Job) time.Duration {
	if len(j.Leases) == 0 || j.Leases[len(j.Leases)-1].Duration == nil {
		return 0
	}
	return time.Duration(*j.Leases[len(j.Leases)-1].Duration)
}

// lastWords is the last line of a failed job's output.
func lastWords(j runner.Job) string {
	if j.State == runner.JobSucceeded || len(j.Leases) == 0 {
		return j.Reason
	}
	lines := strings.Split(strings.TrimSpace(j.Leases[len(j.Leases)-1].OutputTail), "\n")
	return lines[len(lines)-1]
}
