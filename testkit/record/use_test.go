// How suites use the record: what is kept has been judged.

package record

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// testFunctions are the functions of all test files of the module, by folder and then by
// name, which may have one for each build.
func testFunctions(t *testing.T) map[string]map[string][]*ast.FuncDecl {
	t.Helper()
	folders := map[string]map[string][]*ast.FuncDecl{}
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
			folders[dir] = map[string][]*ast.FuncDecl{}
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				folders[dir][f.Name.Name] = append(folders[dir][f.Name.Name], f)
			}
		}
		return nil
	}))
	return folders
}

// calls tells whether a function, or one of its folder that it names, names one of these.
func calls(folder map[string][]*ast.FuncDecl, from string, what ...string) bool {
	seen := map[string]bool{}
	for open := []string{from}; len(open) > 0; open = open[1:] {
		if seen[open[0]] {
			continue
		}
		seen[open[0]] = true
		found := false
		for _, f := range folder[open[0]] {
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					found = found || slices.Contains(what, id.Name)
					open = append(open, id.Name)
				}
				return true
			})
		}
		if found {
			return true
		}
	}
	return false
}

// begins tells whether a statement calls one of these, by the last part of their names.
func begins(s ast.Stmt, what map[string]bool) (found bool) {
	ast.Inspect(s, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch f := call.Fun.(type) {
		case *ast.Ident:
			found = found || what[f.Name]
		case *ast.SelectorExpr:
			x, ok := f.X.(*ast.Ident)
			found = found || ok && what[x.Name+"."+f.Sel.Name]
		}
		return true
	})
	return found
}

// Begin comes first in the test of a whole suite, also where a function of its folder
// calls it for it: what any later cleanup finds is then found before anything is kept.
func TestBeginComesFirst(t *testing.T) {
	suites := 0
	for dir, folder := range testFunctions(t) {
		if dir == filepath.Join("..", "..", "testkit", "record") {
			continue // the record's own tests
		}
		what := map[string]bool{"record.Begin": true}
		for name, builds := range folder {
			for _, f := range builds {
				if !strings.HasPrefix(name, "Test") && begins(f.Body, map[string]bool{"record.Begin": true}) {
					what[name] = true
				}
			}
		}
		for name, builds := range folder {
			for _, f := range builds {
				if !strings.HasPrefix(name, "Test") || !begins(f.Body, what) {
					continue
				}
				suites++
				first := slices.IndexFunc(f.Body.List, func(s ast.Stmt) bool {
					d, ok := s.(*ast.DeclStmt)
					return !ok || d.Decl.(*ast.GenDecl).Tok != token.CONST
				})
				require.True(t, begins(f.Body.List[first], what), "%s of %s does something before its record begins", name, dir)
			}
		}
	}
	require.GreaterOrEqual(t, suites, 12, "suites were not found")
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
