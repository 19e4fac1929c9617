// The house rules as tests: folders, import floors, and who may see which engine.

package testkit

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/forgeyard/forgeyard"

type pkg struct {
	ImportPath string
	Dir        string
	Imports    []string
	Deps       []string
}

// productPackages lists the module's packages with their non-test imports.
func productPackages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,Deps", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		pkgs = append(pkgs, p)
	}
	require.Greater(t, len(pkgs), 20, "go list found too few packages to prove anything")
	return pkgs
}

// floors orders the house from bottom to top: a package may import only lower floors.
var floors = []string{
	"migrations", "fsm", "transport/pki", "transport", "transport/rafttransport",
	"cluster/trace", "cluster/access", "cluster", "cluster/", // contract, then its rooms
	"actors",
	"roles/store", "roles/events", "roles/artifact", "roles/runner", "roles/scheduler", "roles/release", "roles/deploy", "roles/migration",
	"cmd/forgeyard/",
	"cmd/forgeyard",
}

// floorOf returns the position of the longest floor that names the package; -1 for testkit.
func floorOf(t *testing.T, path string) int {
	rel := strings.TrimPrefix(path, module+"/")
	if strings.HasPrefix(rel, "testkit") {
		return -1
	}
	best := -1
	for i, f := range floors {
		match := rel == f || (strings.HasSuffix(f, "/") && strings.HasPrefix(rel, f)) || strings.HasPrefix(rel, f+"/")
		if match && (best < 0 || len(f) > len(floors[best])) {
			best = i
		}
	}
	require.GreaterOrEqual(t, best, 0, "package %s has no floor: the top-level folders are fixed", path)
	return best
}

func TestImportsOnlyGoDown(t *testing.T) {
	mayUseTestkit := module + "/cmd/forgeyard/dev"
	lowest := module + "/migrations/mutant" // every layer may have the site of a planted fault
	require.Zero(t, floorOf(t, lowest))
	for _, p := range productPackages(t) {
		from := floorOf(t, p.ImportPath)
		if from < 0 {
			continue
		}
		for _, imp := range p.Imports {
			if !strings.HasPrefix(imp, module+"/") {
				continue
			}
			require.NotEqual(t, lowest, p.ImportPath, "it imports %s, which could then have no planted fault", imp)
			to := floorOf(t, imp)
			if to < 0 {
				require.Equal(t, mayUseTestkit, p.ImportPath, "%s imports the harness %s", p.ImportPath, imp)
				continue
			}
			sameRoom := floors[from] == floors[to] && strings.HasPrefix(floors[from], "c") // rooms of cluster and of cmd
			nested := strings.HasPrefix(imp, p.ImportPath+"/") || strings.HasPrefix(p.ImportPath, imp+"/")
			require.True(t, to < from || sameRoom || nested, "%s must not import %s: imports only go down", p.ImportPath, imp)
		}
	}
}

func TestEnginesConfined(t *testing.T) {
	allowed := map[string][]string{
		"github.com/hashicorp/raft":                {"transport/rafttransport", "cluster/raftnode", "cluster/recovery", "testkit"},
		"github.com/asynkron/protoactor-go":        {"actors"},
		"github.com/jackc/pgx":                     {"roles", "migrations", "testkit", "cmd/forgeyard/daemon"},
		"github.com/quic-go/quic-go":               {"transport", "testkit"},
		"github.com/spf13/cobra":                   {"cmd"},
		"github.com/asynkron/protoactor-go/remote": nil,
	}
	for _, p := range productPackages(t) {
		rel := strings.TrimPrefix(p.ImportPath, module+"/")
		for engine, where := range allowed {
			uses := slices.ContainsFunc(p.Imports, func(i string) bool { return i == engine || strings.HasPrefix(i, engine+"/") })
			ok := slices.ContainsFunc(where, func(w string) bool { return rel == w || strings.HasPrefix(rel, w+"/") })
			require.True(t, !uses || ok, "%s imports %s", p.ImportPath, engine)
		}
	}
}

func TestNoSecondCoordinator(t *testing.T) {
	for _, p := range productPackages(t) {
		for _, d := range p.Deps {
			for _, other := range []string{"go.etcd.io/etcd", "k8s.io/", "github.com/hashicorp/consul", "github.com/go-zookeeper", "github.com/samuel/go-zookeeper"} {
				require.False(t, strings.HasPrefix(d, other), "%s links %s", p.ImportPath, d)
			}
		}
	}
}

func TestFSMIsPure(t *testing.T) {
	for _, p := range productPackages(t) {
		if p.ImportPath != module+"/fsm" {
			continue
		}
		for _, imp := range p.Imports {
			for _, impure := range []string{"time", "math/rand", "crypto/rand", "net", "os", "io/fs", "database/sql", "github.com/hashicorp/raft"} {
				require.False(t, imp == impure || (strings.HasPrefix(imp, impure+"/") && imp != "net/netip"), "fsm imports %s", imp) // netip only parses
			}
		}
		return
	}
	t.Fatal("package fsm was not listed")
}

func TestTopLevelIsFixed(t *testing.T) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	require.NoError(t, err)
	dir := strings.TrimSpace(string(root))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	fixed := []string{"actors", "roles", "cluster", "fsm", "transport", "cmd", "migrations", "testkit", "go.mod", "go.sum", "Makefile", "README.md", "LICENSE"}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || e.Name() == "bin" {
			continue
		}
		require.Contains(t, fixed, e.Name(), "top-level entry outside the fixed list: %s", filepath.Join(dir, e.Name()))
	}
}
