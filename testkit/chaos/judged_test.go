// Every suite that breaks a fleet of processes holds it against everything that must be true of it.

package chaos

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// harmless are the methods of a fleet and of what is in it that may be called once it
// is judged: they tell where something is, and no work comes of it.
var harmless = []string{"Nodes", "Endpoint"}

// TestEverySuiteIsJudged: a test that starts a fleet comes to World.Settle, or, as
// its agents and jobs are not those that Settle knows, to World.Judge itself, and
// nothing is done to the fleet after that: nobody would judge it.
func TestEverySuiteIsJudged(t *testing.T) {
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var files []string
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		files = append(files, string(text))
	}
	c := readCode(t, files...)
	require.Empty(t, c.late())
	suites := 0
	for name, decls := range c.funcs {
		if strings.HasPrefix(name, "Test") && c.reaches(name, func(e ast.Expr) bool { return isStart(e) }) {
			suites++
			require.True(t, c.reaches(name, c.judges), "%s judges its fleet by less", decls[0].Name)
		}
	}
	require.GreaterOrEqual(t, suites, 5, "suites were not found")
}

// What follows the judgement is found whoever does it, and what does not follow it is not.
func TestWorkAfterTheJudgementIsFound(t *testing.T) {
	const before = `package p
func judged(t *testing.T, w *scenario.World) { w.Judge(t, nil, nil) }
func work(w *scenario.World) { w.Submit(nil, 0, spec) }
func look(w *scenario.World) { for _, n := range w.Nodes() { read(n.Endpoint()) } }
type book struct { f *fleet.Fleet }
func (b *book) close(t *testing.T) { b.f.Nodes()[0].Kill(); judged(t, b.f.World) }
func (b *book) add() { b.f.Agents()[0].Pause(nil) }
func TestX(t *testing.T) { w := scenario.Start(t, o); b := &book{w.Fleet}; n := w.Nodes()[0]; b.add(); n.Kill(); work(w)
`
	for after, late := range map[string]bool{
		"w.Settle(t, 1)": false,
		"w.Settle(t, 1); look(w); read(w.Nodes()[1].Endpoint()); v.Problems()":             false,
		"t.Run(``, func() { w := scenario.Start(t, o); w.Settle(t, 1) }); w.Submit()":      false,
		"for { w := scenario.Start(t, o); work(w); b.close(t) }":                           false,
		"w.Settle(t, 1); w.FillSlots(t)":                                                   true,
		"w.Settle(t, 1); w.Fleet.Upload(nil, dir)":                                         true,
		"w.Settle(t, 1); require.NoError(t, w.Nodes()[0].Restart(nil))":                    true,
		"w.Settle(t, 1); n.Resume(nil)":                                                    true,
		"w.Settle(t, 1); for _, a := range w.Agents() { look(w); a.Kill() }":               true,
		"w.Settle(t, 1); scenario.KillOwner(t, w, 1)":                                      true,
		"w.Settle(t, 1); work(w)":                                                          true,
		"w.Settle(t, 1); t.Run(``, func(t *testing.T) { b.add() })":                        true,
		"b.close(t); b.add()":                                                              true,
		"judged(t, w); w.Traffic(t)":                                                       true,
		"t.Run(``, func() { w.Settle(t, 1) }); w.Submit()":                                 true,
		"if x { w.Settle(t, 1) }; later(func() { w.Submit() })":                            true,
		"w.Settle(t, 1); w.Settle(t, 1)":                                                   true,
		"b.close(t); look(w); v := w.Nodes(); require.NoError(t, v[0].Partition(v[1], 1))": true,
	} {
		found := readCode(t, before+after+"}").late()
		require.Equal(t, late, len(found) > 0, "%s: %v", after, found)
	}
}

// code is the source of a package. A name stands for what it names somewhere.
type code struct {
	funcs map[string][]*ast.FuncDecl // methods too
	world map[string]bool            // what is a *scenario.World or a *fleet.Fleet
	parts map[string]bool            // what the function that is read took from one, as a node
}

func readCode(t *testing.T, files ...string) *code {
	t.Helper()
	c := &code{funcs: map[string][]*ast.FuncDecl{}, world: map[string]bool{"Fleet": true, "World": true}}
	for _, text := range files {
		file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				c.funcs[f.Name.Name] = append(c.funcs[f.Name.Name], f)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				if s, ok := n.Type.(*ast.StarExpr); ok && (isName(s.X, "scenario", "World") || isName(s.X, "fleet", "Fleet")) {
					for _, id := range n.Names {
						c.world[id.Name] = true
					}
				}
			case *ast.AssignStmt:
				if isStart(n.Rhs[0]) {
					c.world[n.Lhs[0].(*ast.Ident).Name] = true
				}
			}
			return true
		})
	}
	return c
}

// read calls see with each node of a function, and with nil after it.
func (c *code) read(f *ast.FuncDecl, see func(ast.Node) bool) {
	outer := c.parts
	defer func() { c.parts = outer }()
	c.parts = map[string]bool{}
	part := func(from ast.Expr, names ...ast.Expr) {
		if _, of := c.methods(from); !of || c.isWorld(from) || c.judges(from) {
			return
		}
		for _, e := range names {
			if id, ok := e.(*ast.Ident); ok && !slices.Contains([]string{"err", "_", "ctx"}, id.Name) {
				c.parts[id.Name] = true
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			part(n.Rhs[0], n.Lhs...)
		case *ast.RangeStmt:
			part(n.X, n.Value)
		}
		return true
	})
	ast.Inspect(f, see)
}

func isName(e ast.Expr, pkg, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg && s.Sel.Name == name
}

func isStart(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	return ok && isName(call.Fun, "scenario", "Start")
}

func (c *code) isWorld(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return c.world[e.Name]
	case *ast.SelectorExpr:
		return c.world[e.Sel.Name]
	}
	return false
}

// methods are those that an expression calls or names, one after the other, of a fleet or a part of it.
func (c *code) methods(e ast.Expr) (names []string, of bool) {
	if c.isWorld(e) {
		return nil, true
	}
	switch e := e.(type) {
	case *ast.Ident:
		return nil, c.parts[e.Name]
	case *ast.SelectorExpr:
		names, of = c.methods(e.X)
		return append(names, e.Sel.Name), of
	case *ast.CallExpr:
		return c.methods(e.Fun)
	case *ast.IndexExpr:
		return c.methods(e.X)
	}
	return nil, false
}

// called is the name of what a call calls, where it may be a function of this package; empty otherwise.
func called(e ast.Expr) string {
	if call, ok := e.(*ast.CallExpr); ok {
		switch f := call.Fun.(type) {
		case *ast.Ident:
			return f.Name
		case *ast.SelectorExpr:
			if x, ok := f.X.(*ast.Ident); !ok || !slices.Contains([]string{"t", "require", "scenario", "time", "context"}, x.Name) {
				return f.Sel.Name
			}
		}
	}
	return ""
}

// judges tells whether an expression itself is the judgement of a fleet.
func (c *code) judges(e ast.Expr) bool {
	names, of := []string(nil), false
	if call, ok := e.(*ast.CallExpr); ok {
		names, of = c.methods(call.Fun)
	}
	return of && len(names) == 1 && (names[0] == "Settle" || names[0] == "Judge")
}

// works tells whether an expression itself does something with a fleet.
func (c *code) works(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	if names, of := c.methods(call.Fun); of {
		return slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(harmless, n) })
	}
	return c.funcs[called(e)] == nil && slices.ContainsFunc(call.Args, c.isWorld)
}

// reaches tells whether a function, or one that it calls, has an expression of that kind.
func (c *code) reaches(from string, kind func(ast.Expr) bool) bool {
	seen, found := map[string]bool{}, false
	for open := []string{from}; len(open) > 0 && !found; open = open[1:] {
		if seen[open[0]] {
			continue
		}
		seen[open[0]] = true
		for _, f := range c.funcs[open[0]] {
			c.read(f, func(n ast.Node) bool {
				if e, ok := n.(ast.Expr); ok {
					found = found || kind(e)
					open = append(open, called(e))
				}
				return true
			})
		}
	}
	return found
}

// late lists what is done to a fleet after it was judged.
func (c *code) late() (late []string) {
	for name, decls := range c.funcs {
		for _, f := range decls {
			var around []ast.Node // the nodes that one is in
			c.read(f, func(n ast.Node) bool {
				if n == nil {
					around = around[:len(around)-1]
					return true
				}
				around = append(around, n)
				if e, ok := n.(ast.Expr); ok && (c.judges(e) || c.reaches(called(e), c.judges)) {
					if did := c.after(e.(*ast.CallExpr), around); did != "" {
						late = append(late, fmt.Sprintf("%s: %s, after the fleet was judged", name, did))
					}
				}
				return true
			})
		}
	}
	return late
}

// after returns what follows a judgement, to the end of the function that has its fleet; empty when nothing does.
func (c *code) after(judgement *ast.CallExpr, around []ast.Node) (did string) {
	whose := root(judgement.Fun)
	if i := slices.IndexFunc(judgement.Args, c.isWorld); i >= 0 {
		whose = root(judgement.Args[i])
	}
	within := around[0]
	for _, n := range slices.Backward(around) {
		if lit, ok := n.(*ast.FuncLit); ok && declares(lit, whose) {
			within = n
			break
		}
	}
	ast.Inspect(within, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if ok && e.Pos() >= judgement.End() && (c.works(e) || c.reaches(called(e), c.works)) {
			did = types.ExprString(e)
		}
		return true
	})
	return did
}

// root is the name with which an expression begins.
func root(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return root(e.X)
	case *ast.CallExpr:
		return root(e.Fun)
	}
	return ""
}

// declares tells whether a function literal gives a name its meaning.
func declares(lit *ast.FuncLit, name string) (found bool) {
	for _, p := range lit.Type.Params.List {
		found = found || slices.ContainsFunc(p.Names, func(id *ast.Ident) bool { return id.Name == name })
	}
	ast.Inspect(lit.Body, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && a.Tok == token.DEFINE {
			found = found || slices.ContainsFunc(a.Lhs, func(e ast.Expr) bool { return root(e) == name })
		}
		return true
	})
	return found
}
