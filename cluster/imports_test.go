// What the contract package may depend on, and who may know that there are two engines.

package cluster_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestContractImportsNoEngine: the root package knows neither Raft nor a network nor actors (§161).
func TestContractImportsNoEngine(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	deps := strings.Fields(string(out))
	require.Contains(t, deps, "github.com/forgeyard/forgeyard/fsm")
	for _, dep := range deps {
		for _, never := range []string{
			"github.com/hashicorp/raft", "net/http", "database/sql", "github.com/jackc/pgx", "github.com/asynkron/protoactor-go",
			"github.com/forgeyard/forgeyard/transport", "github.com/forgeyard/forgeyard/actors", "github.com/forgeyard/forgeyard/roles",
		} {
			within := strings.Contains(never, ".") && strings.HasPrefix(dep, never+"/")
			require.False(t, dep == never || within, "cluster depends on %s", dep)
		}
	}
}

// TestModeNeutral: actors and roles cannot tell a standalone node from a fleet (§164).
func TestModeNeutral(t *testing.T) {
	files := 0
	for _, root := range []string{"../actors", "../roles"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files++
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, imp := range f.Imports {
				name, err := strconv.Unquote(imp.Path.Value)
				require.NoError(t, err)
				require.NotRegexp(t, "/cluster/(local|raftnode|membership|recovery)$", name, path)
			}
			return nil
		})
		require.NoError(t, err)
	}
	require.NotZero(t, files)
}
