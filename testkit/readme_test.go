// What README.md promises is there: the scenario that it prints is compiled, and each fault found names where it was and a test that exists.

package testkit

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func page(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("README.md")
	require.NoError(t, err)
	return string(b)
}

// The scenario in ten lines is the file that the page names.
func TestPrintedScenarioIsCompiled(t *testing.T) {
	_, rest, found := strings.Cut(page(t), "```go\n")
	require.True(t, found)
	printed, _, found := strings.Cut(rest, "```\n")
	require.True(t, found)
	file, err := os.ReadFile(filepath.Join("bubble", "forgets_test.go"))
	require.NoError(t, err)
	require.Equal(t, string(file), printed)
}

var (
	foundRow   = regexp.MustCompile("^\\| (.+?) \\| `([a-z/]+)` \\| (.+) \\|$")
	testInRow  = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`)
	declaredIn = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// Each fault found says where it was, and how it is seen: by tests that exist. A seed
// alone shows nothing once schedules are drawn otherwise.
func TestEveryFaultFoundCanBeSeen(t *testing.T) {
	root := moduleRoot(t)
	tests := map[string]bool{}
	walkModule(t, root, func(path string) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		b, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		for _, m := range declaredIn.FindAllSubmatch(b, -1) {
			tests[string(m[1])] = true
		}
	})
	_, table, found := strings.Cut(page(t), "| fault | where | found by |\n")
	require.True(t, found)
	rows := 0
	for line := range strings.Lines(table) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---") {
			continue
		}
		rows++
		row := foundRow.FindStringSubmatch(line)
		require.NotNil(t, row, line)
		require.DirExists(t, filepath.Join(root, row[2]), line)
		named := testInRow.FindAllString(row[3], -1)
		require.True(t, len(named) > 0 || strings.Contains(row[3], "-bench "), line)
		for _, name := range named {
			exists := tests[name]
			for test := range tests { // -run takes a beginning, too
				exists = exists || strings.HasPrefix(test, name)
			}
			require.True(t, exists, "there is no test %s: %s", name, line)
		}
	}
	require.Greater(t, rows, 50)
}
