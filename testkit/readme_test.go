// What README.md promises is there: the scenario that it prints is compiled, and each fault found names where it was and a test that exists.

package testkit

import (
	"go/build"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
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
	inTicks    = regexp.MustCompile("`([^`]+)`")
	bareTest   = regexp.MustCompile(`^(?:Test|Fuzz)[A-Z]\w*(?:/\S+)?$`)
	testInText = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`)
	declaredIn = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
)

// declared are the tests, fuzz targets and benchmarks of the module, by their file.
type declared map[string][]string

func declaredTests(t *testing.T, root string) declared {
	t.Helper()
	all := declared{}
	walkModule(t, root, func(path string) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		b, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		for _, m := range declaredIn.FindAllSubmatch(b, -1) {
			all[path] = append(all[path], string(m[1]))
		}
	})
	return all
}

// has tells whether a test of that very name is in the packages that a pattern names (./a, ./a/..., ./...) under these build tags.
func (d declared) has(t *testing.T, root, test, pattern string, tags []string) bool {
	t.Helper()
	build := build.Default
	build.BuildTags = tags
	folder, below := strings.CutSuffix(path.Clean(pattern), "...")
	folder = path.Clean(folder)
	for file, tests := range d {
		dir := path.Dir(file)
		if !slices.Contains(tests, test) || !(dir == folder || below && (folder == "." || strings.HasPrefix(dir, folder+"/"))) {
			continue
		}
		match, err := build.MatchFile(filepath.Join(root, dir), path.Base(file))
		require.NoError(t, err)
		if match {
			return true
		}
	}
	return false
}

// unseen lists what a cell names and nothing runs: commands are `go test` with -run or
// -bench and one package; a bare name is a test of `make test`, or of `make chaos` if
// it has Chaos in it. found is how many names there are.
func (d declared) unseen(t *testing.T, root, cell string) (found int, unseen []string) {
	t.Helper()
	look := func(test, pattern string, tags ...string) {
		found++
		test, _, _ = strings.Cut(test, "/")
		if !d.has(t, root, test, pattern, tags) {
			unseen = append(unseen, test+" in "+pattern)
		}
	}
	for _, m := range inTicks.FindAllStringSubmatch(cell, -1) {
		text := m[1]
		_, command, isCommand := strings.Cut(" "+text, " go test ")
		switch {
		case isCommand:
			words := strings.Fields(strings.NewReplacer("'", "", `\|`, "|").Replace(command))
			pattern, tags := words[len(words)-1], []string{"hashicorpmetrics"}
			for _, w := range words {
				if list, ok := strings.CutPrefix(w, "-tags="); ok {
					tags = strings.Split(list, ",")
				}
			}
			for i, w := range words[:len(words)-1] {
				if (w != "-run" && w != "-bench" && w != "-fuzz") || words[i+1] == "^$" {
					continue
				}
				for name := range strings.SplitSeq(words[i+1], "|") {
					if w == "-bench" {
						name = "Benchmark" + name
					}
					look(name, pattern, tags...)
				}
			}
		case bareTest.MatchString(text):
			tags := []string{"hashicorpmetrics"}
			if strings.Contains(text, "Chaos") {
				tags = append(tags, "chaos")
			}
			look(text, "./...", tags...)
		case testInText.MatchString(text):
			unseen = append(unseen, text+", which is neither a command nor a name")
		}
	}
	return found, append(unseen, testInText.FindAllString(inTicks.ReplaceAllString(cell, ""), -1)...)
}

// Each fault found says where it was, and how it is seen: by tests that are in the
// packages named. A seed alone shows nothing once schedules are drawn otherwise.
func TestEveryFaultFoundCanBeSeen(t *testing.T) {
	root := moduleRoot(t)
	tests := declaredTests(t, root)
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
		named, unseen := tests.unseen(t, root, row[3])
		assert.Positive(t, named, line)
		assert.Empty(t, unseen, line)
	}
	require.Greater(t, rows, 50)
}

// A command that would run nothing is found: a test of another package, of other
// build tags, or whose name only begins like that.
func TestCommandThatRunsNothing(t *testing.T) {
	root := moduleRoot(t)
	tests := declaredTests(t, root)
	for cell, want := range map[string]int{
		"`go test -run TestRecordAddsUpRuns ./testkit/record`":                                0,
		"`go test -run 'TestRecordAddsUpRuns\\|TestShow' ./testkit/record/...`":               0,
		"`go test -run TestDamagedFiles/log ./cluster/raftnode`; `TestChaosDiskFails`":        0,
		"`go test -tags=hashicorpmetrics,chaos -run TestReplay ./testkit/seeds`":              0,
		"`go test -run '^$' -bench FailoverEarly -benchtime 1x ./testkit/fleetbench`":         0,
		"`go test -run TestRecordAdds ./testkit/record`":                                      1,
		"`go test -run TestShow ./testkit/record`":                                            1,
		"`go test -run TestRecordAddsUpRuns ./testkit/record/...`; `go test -run TestNo ./x`": 1,
		"`go test -run TestReplay ./testkit/seeds`":                                           1,
		"`go test -run '^$' -bench Failover ./testkit/fleetbench`":                            1,
		"`TestChaosDisk`; TestShow":                                                           2,
		"`-run TestChaosDiskFails`":                                                           1,
		"`TestReplay`":                                                                        1,
		"`make chaos SEED=1`; `TestNowhere`":                                                  1,
	} {
		_, unseen := tests.unseen(t, root, cell)
		require.Len(t, unseen, want, cell)
	}
}

// Each package of the harness has its place in the page's first table.
func TestEveryPackageIsOnThePage(t *testing.T) {
	_, table, found := strings.Cut(page(t), "| package | what it is |\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	var named, there []string
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		for _, m := range inTicks.FindAllStringSubmatch(cells[1], -1) {
			named = append(named, m[1])
		}
	}
	files, err := filepath.Glob(filepath.Join("*", "*.go"))
	require.NoError(t, err)
	for _, f := range files {
		there = append(there, filepath.Dir(f))
	}
	require.ElementsMatch(t, slices.Compact(there), named)
}
