// FIELD_FAULTS.md names tests that exist, for every fault of every kind one that has the kind's name.

package testkit

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fieldFaults is how many faults each kind has.
var fieldFaults = map[string]int{
	"leader-transfer": 2, "leader-lifecycle": 4, "unknown-outcome": 2, "storage-stall": 2, "storage-files": 3, "replication-snapshot": 3, "election-stability": 3,
	"fencing-clock": 3, "quic-transport": 4, "actor-lifecycle": 5, "pg-connection": 4, "pg-locks-tx": 3, "double-run": 3,
}

var (
	fieldFaultRow = regexp.MustCompile(`^\| (FB-\d{3}) [^|]+ \| (.+) \|$`)
	namedTest     = regexp.MustCompile("`([a-z/]+) (Test\\w+)`")
)

func TestEveryFieldFaultHasItsTest(t *testing.T) {
	root := moduleRoot(t)
	page, err := os.ReadFile("FIELD_FAULTS.md")
	require.NoError(t, err)
	tests := map[string]string{} // the sources of a package's tests
	kind, seen, rows := "", map[string]bool{}, map[string]int{}
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "## "); ok {
			kind = name
		}
		if !strings.HasPrefix(line, "| FB-") {
			continue
		}
		row := fieldFaultRow.FindStringSubmatch(line)
		require.NotNil(t, row, line)
		require.False(t, seen[row[1]], "%s stands twice", row[1])
		seen[row[1]] = true
		rows[kind]++
		named := namedTest.FindAllStringSubmatch(row[2], -1)
		require.True(t, len(named) > 0 || strings.HasPrefix(row[2], "cannot occur: "), "%s names no test", row[1])
		ofKind := len(named) == 0
		for _, n := range named {
			ofKind = ofKind || strings.Contains(n[2], camel(kind))
			if _, read := tests[n[1]]; !read {
				tests[n[1]] = testsOf(t, filepath.Join(root, n[1]))
			}
			require.Contains(t, tests[n[1]], "func "+n[2]+"(", "%s: %s has no such test", row[1], n[1])
		}
		require.True(t, ofKind, "%s has no test that is named after its kind", row[1])
	}
	require.Equal(t, fieldFaults, rows)
}

// camel is a kind as it stands in the name of a test.
func camel(kind string) (name string) {
	for word := range strings.SplitSeq(kind, "-") {
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	return name
}

// testsOf is the text of a directory's test files.
func testsOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files, dir)
	var all strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		all.Write(b)
	}
	return all.String()
}
