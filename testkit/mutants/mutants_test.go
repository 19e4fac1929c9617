// Three mutants for every change, what counts as caught, and that no shipped binary has any of this.

package mutants

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/forgeyard/forgeyard/migrations/mutant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every fault has its case and every case its fault.
func TestCatalogIsWhole(t *testing.T) {
	var names []mutant.Name
	for _, c := range Catalog() {
		names = append(names, c.Mutant)
		require.NotEmpty(t, c.Breaks)
	}
	require.ElementsMatch(t, mutant.Names(), names)
	require.GreaterOrEqual(t, len(names), 10)
	require.Len(t, Quick(), 3)
}

func TestQuickMutantsAreKilled(t *testing.T) {
	lab, err := NewLab(t.Context(), t.TempDir())
	require.NoError(t, err)
	for _, c := range Quick() {
		t.Run(string(c.Mutant), func(t *testing.T) {
			trial, err := lab.Try(t.Context(), c)
			require.NoError(t, err)
			t.Logf("caught after %s: %s", trial.Planted.Took.Round(time.Millisecond), trial.Finding())
		})
	}
	t.Run("a mutants build has the names", func(t *testing.T) {
		b, err := lab.Compile(t.Context(), Quick()[0].Test.Package)
		require.NoError(t, err)
		require.NotEmpty(t, traces(t, b))
	})
}

func TestShippedBinaryHasNoMutant(t *testing.T) {
	b := os.Getenv("FORGEYARD_BIN")
	if b == "" {
		b = filepath.Join(t.TempDir(), "forgeyard")
		out, err := exec.Command("go", "build", "-o", b, "github.com/forgeyard/forgeyard/cmd/forgeyard").CombinedOutput()
		require.NoError(t, err, string(out))
	}
	require.Empty(t, traces(t, b))
}

// traces lists what of the mutants a binary has in it.
func traces(t *testing.T, binary string) (found []string) {
	content, err := os.ReadFile(binary)
	require.NoError(t, err)
	require.Greater(t, len(content), 1<<20, "no binary of ours is that small")
	for _, s := range []string{mutant.Env, acts} {
		if bytes.Contains(content, []byte(s)) {
			found = append(found, s)
		}
	}
	for _, n := range mutant.Names() {
		if bytes.Contains(content, []byte(n)) {
			found = append(found, string(n))
		}
	}
	return found
}

func TestVerdict(t *testing.T) {
	const m = mutant.NoBarrier
	const reached = acts + string(m) + "\n"
	const fails = "--- FAIL: TestX (0.00s)\n    x_test.go:9: \n" +
		"        \tError Trace:\t/a/help_test.go:3\n" +
		"        \t            \t\t\t\t/a/x_test.go:9\n        \t            \t\t\t\t/usr/asm.s:7\n" +
		"        \tError:      \tShould be\n        \t            \tfalse\n" +
		"        \tTest:       \tTestX\n        \tMessages:   \tit leads\n"
	passed := Run{Output: "--- PASS: TestX (0.00s)\nPASS\n"}
	caught := Trial{passed, Run{Failed: true, Output: reached + fails}}
	require.NoError(t, caught.verdict(m))
	require.Equal(t, "help_test.go:3 < x_test.go:9: it leads: Should be false", caught.Finding())
	for name, c := range map[string]struct {
		trial Trial
		want  string
	}{
		"fails anyway":      {Trial{Run{Failed: true, Output: fails}, caught.Planted}, "fails without"},
		"no such test":      {Trial{Run{Output: "testing: warning: no tests to run\nPASS\n"}, caught.Planted}, "no test"},
		"planted for good":  {Trial{Run{Output: reached + passed.Output}, caught.Planted}, "none was planted"},
		"not reached":       {Trial{passed, Run{Failed: true, Output: fails}}, "does not reach"},
		"another's finding": {Trial{passed, Run{Failed: true, Output: acts + "x\n" + fails}}, "does not reach"},
		"survives":          {Trial{passed, Run{Output: reached + passed.Output}}, ErrSurvived.Error()},
		"hangs":             {Trial{passed, Run{Failed: true, Output: reached + fails + "panic: test timed out after 1s\n"}}, "hangs"},
		"breaks":            {Trial{passed, Run{Failed: true, Output: reached + "panic: nil map\n"}}, "no assertion"},
	} {
		require.ErrorContains(t, c.trial.verdict(m), c.want, name)
	}
}
