// The catalogue and the source must agree, in both directions.

package codes

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../../../.."

// sourceCodes collects the code literals of the product's own source.
func sourceCodes(t *testing.T) map[string]string {
	t.Helper()
	literal := regexp.MustCompile(`"(FY-[A-Z]+-\d{3}|FENCED)"`)
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testkit" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range literal.FindAllStringSubmatch(string(b), -1) {
			found[m[1]] = path
		}
		return nil
	})
	require.NoError(t, err)
	return found
}

func TestEveryCodeHasAnEntryAndEveryEntryACode(t *testing.T) {
	used := sourceCodes(t)
	require.Greater(t, len(used), 50, "the scan finds the source")
	all, err := All()
	require.NoError(t, err)
	known := map[string]bool{}
	for _, e := range all {
		require.False(t, known[e.Code], "%s has two entries", e.Code)
		known[e.Code] = true
		require.Contains(t, used, e.Code, "the entry explains a code that nothing uses")
	}
	for code, path := range used {
		require.True(t, known[code], "%s of %s has no entry", code, path)
	}
}

func TestEntriesAreWhole(t *testing.T) {
	all, err := All()
	require.NoError(t, err)
	for _, e := range all {
		require.NotEmpty(t, e.Title, e.Code)
		for line := range strings.SplitSeq(e.Text, "\n") {
			word, _, ok := strings.Cut(line, ": ")
			require.True(t, ok && slices.Contains([]string{"What", "Why", "Now"}, word), "%s: %q starts with neither What, Why nor Now", e.Code, line)
		}
		require.Contains(t, e.Text, "Now: ", "%s does not say what to do", e.Code)
		require.Less(t, len(e.Text), 1000, e.Code)
	}
}

func TestFind(t *testing.T) {
	e, ok, err := Find("fy-quorum-001")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "FY-QUORUM-001", e.Code)
	_, ok, err = Find("FY-NONE-001")
	require.NoError(t, err)
	require.False(t, ok)
}
