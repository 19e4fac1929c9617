// One file keeps what all suites count, wherever it is asked for from.

package record

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Suites run in folders of their own: each would keep a file of its own.
func TestFileIsTheSameForAllSuites(t *testing.T) {
	t.Setenv(FileEnv, filepath.Join("bin", "record.jsonl"))
	t.Chdir(t.TempDir())
	r := &run{TB: t}
	r.do(func() { Begin(r, "s").Add("kill", 1) })
	require.True(t, r.failed)
	require.NoDirExists(t, "bin")
}

// What runs the suites makes the name absolute first. The go that it finds here only notes what it is told.
func TestFileIsMadeAbsolute(t *testing.T) {
	here, err := os.Getwd()
	require.NoError(t, err)
	for _, script := range []string{"chaos", "soak"} {
		for _, c := range []struct{ told, want string }{
			{"", "bin/chaos-record.jsonl"}, {"kept/record.jsonl", "kept/record.jsonl"}, {"/nowhere/record.jsonl", "/nowhere/record.jsonl"},
		} {
			dir := t.TempDir()
			if !filepath.IsAbs(c.want) {
				c.want = filepath.Join(dir, c.want)
			}
			noted := filepath.Join(dir, "noted")
			fake := "#!/bin/sh\necho \"$" + FileEnv + "\" >>" + noted + "\n"
			require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte(fake), 0o700))
			cmd := exec.CommandContext(t.Context(), "/bin/sh", filepath.Join(here, "..", "..", ".ci", script), "60")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), FileEnv+"="+c.told, "PWD="+dir)
			text, err := cmd.CombinedOutput()
			require.True(t, err == nil || script == "chaos", "%s", text) // its suites are not there
			got, err := os.ReadFile(noted)
			require.NoError(t, err)
			lines := strings.Fields(string(got))
			require.NotEmpty(t, lines)
			for _, line := range lines {
				require.Equal(t, c.want, line, "%s: %s", script, text)
			}
		}
	}
}
