// Tests of what coordination state may and may not hold, by reflection over its whole type graph.

package fsm

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// walk visits every field of every struct that t can reach.
func walk(t reflect.Type, path string, visit func(path string, f reflect.StructField)) {
	switch t.Kind() {
	case reflect.Slice:
		walk(t.Elem(), path+"[]", visit)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			visit(path+"."+f.Name, f)
			walk(f.Type, path+"."+f.Name, visit)
		}
	}
}

func walkAll(visit func(path string, f reflect.StructField)) {
	walk(reflect.TypeFor[snapshot](), "snapshot", visit)
	for _, c := range everyCommand() {
		walk(reflect.TypeOf(c), c.Kind().String(), visit)
	}
}

func TestNoArbitraryPayloadFields(t *testing.T) {
	// The only text there is, each with the bound that check enforces.
	bounded := map[string]int{
		"Name": MaxName, "ClusterName": MaxName, "Build": MaxBuild, "Code": MaxCode, "Reason": MaxReason,
		"Endpoint": MaxEndpoint, "Agents": MaxEndpoint,
	}
	lists := map[string]int{
		"Members": MaxMembers, "Roles": len(Roles()), "Releases": len(Roles()), "Exclusive": len(scopeNames),
		"Recent": MaxRecent, "Removed": MaxRemoved,
	}
	walkAll(func(path string, f reflect.StructField) {
		switch f.Type.Kind() {
		case reflect.String:
			require.Contains(t, bounded, f.Name, path)
		case reflect.Slice:
			require.Contains(t, lists, f.Name, path)
			require.NotEqual(t, reflect.Uint8, f.Type.Elem().Kind(), "%s holds raw bytes", path)
		case reflect.Array:
			require.Equal(t, 16, f.Type.Len(), path)
			require.Equal(t, reflect.Uint8, f.Type.Elem().Kind(), path)
		case reflect.Struct, reflect.Bool, reflect.Uint8, reflect.Uint32, reflect.Uint64:
		default:
			require.Failf(t, "a field that could hold anything", "%s is a %s", path, f.Type)
		}
	})
	rel := ReleaseRole{Role: SchedulerLeader, Node: node(1), Incarnation: inc(1)}
	up := UpdateMember{Node: node(1), ExpectedIncarnation: inc(1)}
	for _, c := range []Command{
		InitCluster{ClusterID: clusterID(1), Name: strings.Repeat("x", MaxName+1), Founder: member(1)},
		func() Command { c := rel; c.Code = strings.Repeat("x", MaxCode+1); return c }(),
		func() Command { c := rel; c.Reason = strings.Repeat("x", MaxReason+1); return c }(),
		func() Command { c := up; c.Name = strings.Repeat("x", MaxName+1); return c }(),
		func() Command { c := up; c.Build = strings.Repeat("x", MaxBuild+1); return c }(),
		func() Command { c := up; c.Endpoint = longestEndpoint() + "0"; return c }(),
		func() Command { c := up; c.Agents = longestEndpoint() + "0"; return c }(),
	} {
		_, err := EncodeProposal(propose(c))
		require.Error(t, err, "%s", c.Kind())
	}
}

// words splits a Go name: "LeaderEpoch" gives leader, epoch.
func words(name string) []string {
	var out []string
	start := 0
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) && unicode.IsLower(rune(name[i-1])) {
			out = append(out, strings.ToLower(name[start:i]))
			start = i
		}
	}
	return append(out, strings.ToLower(name[start:]))
}

func vocabulary() map[string]string {
	seen := map[string]string{}
	walkAll(func(path string, f reflect.StructField) {
		for _, n := range []string{f.Name, f.Type.Name()} {
			for _, w := range words(n) {
				seen[strings.TrimSuffix(w, "s")] = path
			}
		}
	})
	for _, c := range everyCommand() {
		for _, w := range words(c.Kind().String()) {
			seen[w] = c.Kind().String()
		}
	}
	return seen
}

func TestForbiddenInRaft(t *testing.T) {
	seen := vocabulary()
	require.Contains(t, seen, "epoch", "the scan sees field names")
	for name, forbidden := range map[string][]string{
		"run_rows": {"run"}, "job_rows": {"job", "attempt", "lease_id"}, "logs": {"log", "line", "output"},
		"artifacts": {"artifact"}, "sboms": {"sbom"}, "release_manifests": {"manifest", "channel"},
		"deployment_manifests": {"manifest", "target", "phase"}, "policy_documents": {"policy", "document"},
		"user_sessions": {"user", "session", "password"}, "scm_payloads": {"scm", "commit", "branch", "payload"},
		"run_state": {"run", "result_of"}, "artifact_metadata": {"artifact", "metadata", "size"},
		"cas": {"ca", "digest", "blob", "object"}, "webhooks": {"webhook", "body", "url"},
		"metrics": {"metric", "count", "gauge"}, "audit": {"audit", "actor", "history"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, w := range forbidden {
				if at, ok := seen[w]; ok {
					// The snapshot's State field has type body: the state itself, no payload.
					require.Equal(t, "snapshot.State", at, "%q", w)
				}
			}
		})
	}
}

func TestNoProjectScopedCommand(t *testing.T) {
	seen := vocabulary()
	for _, w := range []string{"project", "repository", "tenant", "pipeline", "parameter"} {
		require.NotContains(t, seen, w)
	}
}

func TestStateShapeGolden(t *testing.T) {
	var out strings.Builder
	walk(reflect.TypeFor[body](), "state", func(path string, f reflect.StructField) {
		fmt.Fprintf(&out, "%-40s %s %s\n", path, f.Type, f.Tag.Get("cbor"))
	})
	golden(t, "state.golden", out.String())
}

func TestSnapshotContentsGolden(t *testing.T) {
	var out strings.Builder
	walk(reflect.TypeFor[snapshot](), "snapshot", func(path string, f reflect.StructField) {
		if strings.Count(path, ".") <= 2 {
			fmt.Fprintf(&out, "%-30s %s\n", path, f.Tag.Get("cbor"))
		}
	})
	golden(t, "snapshot.golden", out.String())
}

func TestNoQueryAPIOnState(t *testing.T) {
	var methods []string
	st := reflect.TypeFor[*State]()
	for i := range st.NumMethod() {
		methods = append(methods, st.Method(i).Name)
	}
	require.Equal(t, []string{"Apply", "Clone", "EncodeSnapshot", "Hash", "View"}, methods)
}

func TestClusterMemberFields(t *testing.T) {
	var fields []string
	mt := reflect.TypeFor[Member]()
	for i := range mt.NumField() {
		fields = append(fields, mt.Field(i).Name)
	}
	require.Equal(t, []string{"Node", "Incarnation", "Name", "Role", "State", "Endpoint", "Agents", "Protocol", "Build"}, fields)
}

func TestRoleEpochShape(t *testing.T) {
	l := fleet(t)
	for range 3 {
		l.assign(SchedulerLeader, 1)
	}
	l.assign(MigrationCoordinator, 2)
	l.assign(ReleaseCoordinator, 3)
	v := l.s.View()
	require.Len(t, v.Roles, 3, "at most one grant per role")
	require.True(t, slices.IsSortedFunc(v.Roles, func(a, b RoleGrant) int { return int(a.Role) - int(b.Role) }))
	require.Equal(t, RoleGrant{Role: ReleaseCoordinator, Epoch: v.Epoch, Owner: node(3), Incarnation: inc(3)}, v.Role(ReleaseCoordinator))
}

func TestExclusiveLeaseShape(t *testing.T) {
	lt := reflect.TypeFor[ExclusiveLease]()
	for i := range lt.NumField() {
		require.Contains(t, []string{"Scope", "Owner", "Incarnation", "Epoch"}, lt.Field(i).Name, "no time-to-live")
	}
	l := fleet(t)
	for _, r := range Roles() {
		l.assign(r, 1)
	}
	require.Len(t, Scopes(), len(scopeNames))
	for _, s := range slices.Backward(Scopes()) {
		l.must(StartExclusiveOperation{Scope: s, Owner: node(1), Incarnation: inc(1)})
		l.refuse(RejectHeld, StartExclusiveOperation{Scope: s, Owner: node(2), Incarnation: inc(2)})
	}
	require.Len(t, l.s.View().Exclusive, 5)
}

func TestClusterConfigurationShape(t *testing.T) {
	l := newLab(t).found()
	for _, n := range []uint64{9, 3, 7, 5} {
		l.must(AddLearner{ExpectedConfig: l.config(), Member: learner(n)})
	}
	var order []NodeID
	for _, m := range l.s.View().Members {
		order = append(order, m.Node)
	}
	require.Equal(t, []NodeID{node(1), node(3), node(5), node(7), node(9)}, order)
	require.Equal(t, ConfigVersion(5), l.s.View().Config)
}

func TestGoodCandidatesCovered(t *testing.T) {
	bt := reflect.TypeFor[body]()
	for candidate, field := range map[string]string{
		"cluster membership": "Config", "current coordination leader": "Leader", "scheduler leader epoch": "Roles",
		"release-operation epoch": "Exclusive", "deployment-operation epoch": "Exclusive", "maintenance epoch": "MaintenanceEpoch",
		"trust-rotation epoch": "Exclusive", "configuration version": "Config",
	} {
		_, ok := bt.FieldByName(field)
		require.True(t, ok, candidate)
	}
	for _, s := range []Scope{ReleaseChannelPromotion, DeploymentGlobalSwitch, TrustRootRotation} {
		require.True(t, s.Valid())
	}
}

func TestEveryCommandJustified(t *testing.T) {
	design, err := os.ReadFile("DESIGN.md")
	require.NoError(t, err)
	for _, name := range kindNames {
		_, row, found := strings.Cut(string(design), "\n| "+name+" | ")
		require.True(t, found, "DESIGN.md gives no reason for %s", name)
		reason, _, _ := strings.Cut(row, " |\n")
		require.Greater(t, len(reason), 20, name)
	}
}

func TestNoImpureImports(t *testing.T) {
	// cbor and ulid encode; everything else is pure computation.
	allowed := []string{
		"bytes", "crypto/sha256", "encoding/binary", "errors", "fmt", "net/netip", "slices", "strconv", "strings",
		"unicode", "unicode/utf8", "github.com/fxamacker/cbor/v2", "github.com/oklog/ulid/v2",
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	checked := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		checked++
		src, err := os.ReadFile(name)
		require.NoError(t, err)
		f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
		require.NoError(t, err)
		for _, imp := range f.Imports {
			path, err := strconv.Unquote(imp.Path.Value)
			require.NoError(t, err)
			require.Contains(t, allowed, path, name)
		}
		for _, impure := range []string{"ulid.Make", "ulid.New", "ulid.MustNew", "ulid.Now", "ulid.Timestamp", "ulid.DefaultEntropy", "go func"} {
			require.NotContains(t, string(src), impure, name)
		}
	}
	require.Greater(t, checked, 10)
}
