// Running the binary once, to its end.

package clitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// commandBound is how long one command may take before it counts as stuck. The
// machine may be busy with other tests.
const commandBound = 60 * time.Second

// product is the binary under its own name in a directory of its own, so that a
// PATH of that directory finds it: FORGEYARD_BIN, else built now.
func product(t testing.TB) string {
	t.Helper()
	out := filepath.Join(scratch(t), "forgeyard")
	if b := os.Getenv("FORGEYARD_BIN"); b != "" {
		content, err := os.ReadFile(b)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(out, content, 0o755))
		return out
	}
	text, err := exec.Command("go", "build", "-o", out, "github.com/forgeyard/forgeyard/cmd/forgeyard").CombinedOutput()
	require.NoError(t, err, string(text))
	return out
}

// scratch is a directory with a short path (unix sockets live below it) that
// another user may pass through (PostgreSQL, when the tests run as root).
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fyc")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// outcome is how a command ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// fault is the FY code of the error document that -o json puts last on standard error.
func (o outcome) fault(t testing.TB) (code, message string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(o.stderr), "\n")
	var doc struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
			Hint    string `json:"hint"`
		} `json:"error"`
	}
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &doc), o.stderr)
	return doc.Error.Code, doc.Error.Message
}

// environment is that of a user who has configured nothing.
func environment(extra ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "FORGEYARD_") {
			env = append(env, kv)
		}
	}
	return append(env, extra...)
}

// command runs the binary to its end.
func command(t testing.TB, exe string, env []string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandBound)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = filepath.Dir(exe), env, &out, &errs
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "forgeyard %v does not end:\n%s", args, errs.String())
	var exit *exec.ExitError
	if err != nil {
		require.True(t, errors.As(err, &exit), "forgeyard %v: %v", args, err)
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// eventually waits for a fact.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, commandBound, 20*time.Millisecond, what)
}

// grep returns the lines of a file that contain a text.
func grep(t testing.TB, file, text string) (lines []string) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.SplitSeq(string(b), "\n") {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}
