// Every suite that breaks a fleet of processes holds it against everything that must be true of it.

package chaos

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEverySuiteIsJudged: a test that starts a fleet comes to World.Settle, or, as
// its agents and jobs are not those that Settle knows, to World.Judge itself, and
// nothing that works follows: nobody would judge it.
func TestEverySuiteIsJudged(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	calls := map[string][]string{} // by function: what it names
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && x.Name == "scenario" {
						calls[f.Name.Name] = append(calls[f.Name.Name], "scenario."+s.Sel.Name)
						return false
					}
				}
				if id, ok := n.(*ast.Ident); ok {
					calls[f.Name.Name] = append(calls[f.Name.Name], id.Name)
				}
				return true
			})
		}
	}
	reaches := func(from string, what ...string) bool {
		seen := map[string]bool{}
		for open := []string{from}; len(open) > 0; open = open[1:] {
			if slices.Contains(what, open[0]) {
				return true
			}
			if !seen[open[0]] {
				seen[open[0]] = true
				open = append(open, calls[open[0]]...)
			}
		}
		return false
	}
	suites := 0
	for name, called := range calls {
		judged := slices.IndexFunc(called, func(c string) bool { return reaches(c, "Settle", "Judge") })
		require.False(t, judged >= 0 && slices.ContainsFunc(called[judged:], func(c string) bool {
			return c != called[judged] && reaches(c, "FillSlots", "WaitTerminal")
		}), "%s has its fleet work after it was judged", name)
		if strings.HasPrefix(name, "Test") && reaches(name, "scenario.Start") {
			suites++
			require.True(t, reaches(name, "Settle", "Judge"), "%s judges its fleet by less", name)
		}
	}
	require.GreaterOrEqual(t, suites, 5, "suites were not found")
}
