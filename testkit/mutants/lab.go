// Lab: compiles test binaries that can have a fault, and runs their tests.

package mutants

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/forgeyard/forgeyard/migrations/mutant"
)

// Tags are those of a mutants build.
const Tags = "hashicorpmetrics,mutants"

// testTimeout ends a test that hangs; a mutant that only makes a test hang has not been caught.
const testTimeout = 90 * time.Second

// Lab keeps compiled test binaries, and how their tests went without a fault.
// It is used by one goroutine.
type Lab struct {
	root     string            // of the module
	dir      string            // where the binaries are
	binaries map[string]string // by package
	clean    map[Test]Run
}

// NewLab makes a lab for the module that the working directory is in; binaries go to dir.
func NewLab(ctx context.Context, dir string) (*Lab, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("find the module: %w", err)
	}
	return &Lab{root: strings.TrimSpace(string(out)), dir: dir, binaries: map[string]string{}, clean: map[Test]Run{}}, nil
}

// Compile makes the test binary of a package, once, and returns its path.
func (l *Lab) Compile(ctx context.Context, pkg string) (string, error) {
	if b, done := l.binaries[pkg]; done {
		return b, nil
	}
	b := filepath.Join(l.dir, strings.ReplaceAll(pkg, "/", "-")+".test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-tags="+Tags, "-o", b, "./"+pkg)
	cmd.Dir = l.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the tests of %s: %w\n%s", pkg, err, out)
	}
	l.binaries[pkg] = b
	return b, nil
}

// Try runs a case's test without the fault and with it. The error is nil when
// the test passed without and caught the fault.
func (l *Lab) Try(ctx context.Context, c Case) (Trial, error) {
	b, err := l.Compile(ctx, c.Test.Package)
	if err != nil {
		return Trial{}, err
	}
	clean, known := l.clean[c.Test]
	if !known {
		if clean, err = l.run(ctx, b, c.Test, ""); err != nil {
			return Trial{}, err
		}
		l.clean[c.Test] = clean
	}
	t := Trial{Clean: clean}
	if t.Planted, err = l.run(ctx, b, c.Test, c.Mutant); err != nil {
		return t, err
	}
	return t, t.verdict(c.Mutant)
}

// run runs a test. A test that fails is no error.
func (l *Lab) run(ctx context.Context, binary string, t Test, m mutant.Name) (Run, error) {
	cmd := exec.CommandContext(ctx, binary, "-test.run="+t.Run, "-test.v", "-test.count=1", "-test.timeout="+testTimeout.String())
	cmd.Dir = filepath.Join(l.root, t.Package)
	cmd.Env = append(os.Environ(), mutant.Env+"="+string(m))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	err := cmd.Run()
	r := Run{Output: out.String(), Took: time.Since(start), Failed: err != nil}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return r, fmt.Errorf("run %s: %w", binary, err)
	}
	return r, ctx.Err()
}
