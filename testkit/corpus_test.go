// Every fuzz target has a committed corpus, and every corpus a target.

package testkit

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// leastSeeds is how many inputs a corpus has at least: fewer show a decoder next to nothing.
const leastSeeds = 5

var fuzzTarget = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

func TestEveryFuzzTargetHasACorpus(t *testing.T) {
	root := moduleRoot(t)
	targets := map[string]string{} // directory of the corpus by "package target"
	kept := map[string]int{}       // files by directory
	walkModule(t, root, func(path string) {
		if strings.HasSuffix(path, "_test.go") {
			src, err := os.ReadFile(filepath.Join(root, path))
			require.NoError(t, err)
			for _, m := range fuzzTarget.FindAllStringSubmatch(string(src), -1) {
				dir := filepath.Dir(path)
				targets[dir+" "+m[1]] = filepath.Join(dir, "testdata", "fuzz", m[1])
			}
		}
		if up := filepath.Dir(path); filepath.Base(filepath.Dir(up)) == "fuzz" && filepath.Base(filepath.Dir(filepath.Dir(up))) == "testdata" {
			kept[up]++
		}
	})
	require.Greater(t, len(targets), 20, "too few targets were found to prove anything")
	for name, dir := range targets {
		require.GreaterOrEqual(t, kept[dir], leastSeeds, "%s: UPDATE_GOLDEN=1 go test -run %s writes the files of package testkit/corpus", name, filepath.Base(dir))
		delete(kept, dir)
	}
	require.Empty(t, kept, "a corpus without its target")
}

// moduleRoot is the directory of go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("..")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "go.mod"))
	return dir
}

// walkModule calls see with each file of the module, by its path from the module's root.
func walkModule(t *testing.T, root string, see func(path string)) {
	t.Helper()
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != "." && (strings.HasPrefix(e.Name(), ".") || e.Name() == "bin"):
			return fs.SkipDir
		case !e.IsDir():
			see(path)
		}
		return nil
	}))
}
