// Rules over the source: handlers never wait, guards never travel, only the local engine is used.

package actors

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func sources(t *testing.T) (*token.FileSet, []*ast.File) {
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	set := token.NewFileSet()
	var files []*ast.File
	for _, n := range names {
		if strings.HasSuffix(n, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, n, nil, 0)
		require.NoError(t, err)
		files = append(files, f)
	}
	return set, files
}

// waits lists what a handler must not do, by position: everything that can
// block, found in the functions that a handler reaches. Function literals are
// left out: they run on goroutines and timers.
func waits(set *token.FileSet, files []*ast.File) []string {
	bodies := map[string][]*ast.BlockStmt{}
	for _, f := range files {
		for _, d := range f.Decls {
			// Do and Stop are for callers outside; they share their names with the
			// engine's calls. misbehave waits because a test asked for it.
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil && !slices.Contains([]string{"Do", "Stop", "misbehave"}, fn.Name.Name) {
				bodies[fn.Name.Name] = append(bodies[fn.Name.Name], fn.Body)
			}
		}
	}
	var found []string
	todo, seen := []string{"Receive", "HandleFailure", "receive"}, map[string]bool{}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if seen[name] {
			continue
		}
		seen[name] = true
		for _, body := range bodies[name] {
			ast.Inspect(body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncLit, *ast.GoStmt:
					return false
				case *ast.SelectStmt:
					for _, c := range n.Body.List {
						if c.(*ast.CommClause).Comm == nil {
							return false // has a default: does not wait
						}
					}
					found = append(found, set.Position(n.Pos()).String()+": select")
				case *ast.UnaryExpr:
					if n.Op == token.ARROW {
						found = append(found, set.Position(n.Pos()).String()+": receive")
					}
				case *ast.CallExpr:
					called := ""
					switch f := n.Fun.(type) {
					case *ast.Ident:
						called = f.Name
					case *ast.SelectorExpr:
						called = f.Sel.Name
					}
					switch called {
					case "Result", "Wait", "Sleep", "RequestFuture", "StopFuture", "PoisonFuture", "Propose", "StepDown", "AcquireRole":
						found = append(found, set.Position(n.Pos()).String()+": "+called)
					case "SetReceiveTimeout", "WithGuardian", "Stash":
						found = append(found, set.Position(n.Pos()).String()+": "+called)
					}
					todo = append(todo, called)
				}
				return true
			})
		}
	}
	return found
}

func TestActorLifecycleHandlersNeverWait(t *testing.T) {
	set, files := sources(t)
	require.Empty(t, waits(set, files))
}

// The rule itself must be able to fail.
func TestHandlersNeverWaitFindsWaits(t *testing.T) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "bad.go", `package bad
func (a *actor) Receive(c context) { a.step(c) }
func (a *actor) step(c context) { f.Result(); <-ch; select { case <-ch: }; go func() { wg.Wait() }() }`, 0)
	require.NoError(t, err)
	require.Len(t, waits(set, []*ast.File{f}), 3+1, "Result, receive, and a select with its receive")
}

// No message carries a guard: what is sent is declared in this package, and
// only the tree and functions hold one.
func TestGuardNeverLeaves(t *testing.T) {
	_, files := sources(t)
	holders := []string{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			st, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range st.Fields.List {
				if sel, ok := field.Type.(*ast.SelectorExpr); ok && sel.Sel.Name == "RoleGuard" {
					holders = append(holders, spec.Name.Name)
				}
			}
			return true
		})
	}
	require.Equal(t, []string{"tree"}, holders)
}

func TestNoProtoactorRemote(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", ".")
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false -tags=hashicorpmetrics")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, pkg := range strings.Fields(string(out)) {
		for _, banned := range []string{"protoactor-go/remote", "protoactor-go/cluster", "hashicorp/raft", "google.golang.org/grpc"} {
			require.NotContains(t, pkg, banned)
		}
	}
}
