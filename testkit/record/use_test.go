// How suites use the record: what is kept has been judged.

package record

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// testFunctions are the functions of all test files of the module, by folder and then by name.
func testFunctions(t *testing.T) map[string]map[string]*ast.FuncDecl {
	t.Helper()
	folders := map[string]map[string]*ast.FuncDecl{}
	require.NoError(t, filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		if folders[dir] == nil {
			folders[dir] = map[string]*ast.FuncDecl{}
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				folders[dir][f.Name.Name] = f
			}
		}
		return nil
	}))
	return folders
}

// calls tells whether a function, or one of its folder that it names, names one of these.
func calls(folder map[string]*ast.FuncDecl, from string, what ...string) bool {
	seen := map[string]bool{}
	for open := []string{from}; len(open) > 0; open = open[1:] {
		f := folder[open[0]]
		if f == nil || seen[open[0]] {
			continue
		}
		seen[open[0]] = true
		found := false
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				for _, w := range what {
					found = found || id.Name == w
				}
				open = append(open, id.Name)
			}
			return true
		})
		if found {
			return true
		}
	}
	return false
}

// The hour that is owed is one of fleets whose rows, journals and traces are held
// against everything that must be true of them.
func TestTimeCountsWhereItIsJudged(t *testing.T) {
	suites := 0
	for dir, folder := range testFunctions(t) {
		if dir == filepath.Join("..", "..", "testkit", "record") {
			continue // the record's own tests
		}
		for name := range folder {
			if strings.HasPrefix(name, "Test") && calls(folder, name, "Broken") {
				suites++
				require.True(t, calls(folder, name, "Settle", "Judge"), "%s of %s counts the time of fleets that nobody judges", name, dir)
			}
		}
	}
	require.GreaterOrEqual(t, suites, 4, "suites were not found")
}
