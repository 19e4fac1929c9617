// The actors endpoint: complete, filtered, fast with stuck actors, silent about guards.

package actors

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
)

func ask(t testing.TB, s *System, query string) (int, []byte) {
	rec := httptest.NewRecorder()
	Routes(s)[0].Handler.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/cluster/actors"+query, nil))
	return rec.Code, rec.Body.Bytes()
}

func TestIntrospectionTree(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		epoch := h.active(role)
		h.settle(time.Second)
		code, body := ask(t, h.sys, "")
		require.Equal(t, http.StatusOK, code)
		var forest Forest
		require.NoError(t, json.Unmarshal(body, &forest))
		require.Equal(t, "forgeyard.dev/v1", forest.APIVersion)
		require.Equal(t, "ActorTree", forest.Kind)
		require.Equal(t, member(1).Node, forest.Node)
		require.Equal(t, "node-1", forest.NodeName)
		require.Equal(t, []string{pathRoot, pathCoordination, pathLeader, rolePath(role), treePath(role, epoch), treePath(role, epoch) + "/idle", pathWatcher}, pathsOf(forest))
		seen := map[string]bool{"": true}
		for _, a := range forest.Actors {
			require.True(t, seen[a.Parent], "%s stands before its parent", a.Path)
			seen[a.Path] = true
		}
		i := slices.IndexFunc(forest.Actors, func(a ActorInfo) bool { return a.Path == treePath(role, epoch) })
		require.GreaterOrEqual(t, i, 0)
		got := forest.Actors[i]
		require.Equal(t, KindRole, got.Kind)
		require.Equal(t, role, got.Role)
		require.Equal(t, epoch, got.Epoch)
		require.Equal(t, cluster.GuardActive, got.GuardState)
		require.Equal(t, "3 jobs, 1 lease", got.LastScan.Result)
		require.Equal(t, "running", got.State)
		require.NotZero(t, got.Messages)
		require.False(t, got.StartedAt.IsZero())
	}, &probe{role: role})
}

func pathsOf(f Forest) (list []string) {
	for _, a := range f.Actors {
		list = append(list, a.Path)
	}
	return list
}

func TestActorsEndpointFilters(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		epoch := h.active(role)
		paths := func(query string) []string {
			code, body := ask(t, h.sys, query)
			require.Equal(t, http.StatusOK, code)
			var forest Forest
			require.NoError(t, json.Unmarshal(body, &forest))
			return pathsOf(forest)
		}
		require.Equal(t, []string{"root"}, paths("?depth=0"))
		require.Equal(t, []string{"root", "coordination"}, paths("?depth=1"))
		require.NotContains(t, paths("?depth=2"), treePath(role, epoch))
		require.Contains(t, paths("?depth=3"), treePath(role, epoch))
		require.Equal(t, []string{treePath(role, epoch), treePath(role, epoch) + "/idle"}, paths("?path="+treePath(role, epoch)))
		for _, bad := range []string{"?depth=-1", "?depth=x"} {
			code, body := ask(t, h.sys, bad)
			require.Equal(t, http.StatusBadRequest, code)
			require.Contains(t, string(body), "FY-API-001")
		}
	}, &probe{role: role})
}

func TestActorsEndpointWithStuckActors(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		h.active(role)
		release := make(chan struct{})
		for _, i := range h.sys.Tree() {
			if i.Kind != KindLoop {
				require.NoError(t, h.sys.Stall(i.Path, release))
			}
		}
		h.settle(3 * time.Second)
		began := time.Now()
		code, body := ask(t, h.sys, "")
		require.Equal(t, http.StatusOK, code)
		require.Zero(t, time.Since(began), "it waits for nobody")
		var forest Forest
		require.NoError(t, json.Unmarshal(body, &forest))
		for _, a := range forest.Actors {
			if a.Kind != KindLoop {
				require.GreaterOrEqual(t, a.OldestMessageAge, 3*time.Second, a.Path)
			}
		}
		close(release)
	}, &probe{role: role})
}

func TestActorFigures(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		h.backend.assign(role, 1)
		first := h.active(role)
		h.crash(treePath(role, first))
		require.Greater(t, h.active(role), first)
		reg := prometheus.NewPedanticRegistry()
		require.NoError(t, reg.Register(h.sys.Collector()))
		families, err := reg.Gather()
		require.NoError(t, err)
		require.Len(t, families, 2)
		for _, f := range families {
			require.Len(t, f.GetMetric(), 2, "one line for the role, one for the supervisors")
			if f.GetName() == "forgeyard_actor_restarts" {
				require.Equal(t, role.String(), f.GetMetric()[1].GetLabel()[0].GetValue())
				require.Equal(t, 1.0, f.GetMetric()[1].GetGauge().GetValue())
			}
		}
	}, &probe{role: role})
}

func TestRoutesNeedClusterRead(t *testing.T) {
	routes := Routes(&System{})
	require.Len(t, routes, 1)
	require.Equal(t, access.ClusterRead, routes[0].Permission)
	require.Equal(t, "/v1/cluster/actors", routes[0].Pattern)
}

func TestLastFailureIsBounded(t *testing.T) {
	r := &record{}
	r.failed(strings.Repeat("ü", 1000)+"\xff", true)
	info := r.info(time.Now())
	require.LessOrEqual(t, len(info.LastFailure), maxFailure+len("…"))
	require.Equal(t, info.LastFailure, strings.ToValidUTF8(info.LastFailure, "?"))
	require.Equal(t, 1, info.Restarts)
}

// BenchmarkActorsEndpoint asks for a tree of 200 entries; goal p99 ≤ 5 ms.
func BenchmarkActorsEndpoint(b *testing.B) {
	h := boot(b, nil, &probe{role: role})
	defer func() {
		require.NoError(b, h.service.Close(b.Context()))
		require.NoError(b, h.sys.Stop(b.Context()))
	}()
	parent := treePath(role, 1)
	for i := len(h.sys.Tree()); i < 200; i++ {
		rec := &record{path: parent + "/" + string(rune('a'+i%26)) + strings.Repeat("x", i), parent: parent, kind: KindLoop, role: role, epoch: 1}
		h.sys.registry.add(rec, time.Now())
		rec.failed("a failure of an ordinary length, with a reason", true)
	}
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		began := time.Now()
		code, _ := ask(b, h.sys, "")
		took = append(took, time.Since(began))
		require.Equal(b, http.StatusOK, code)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(len(h.sys.Tree())), "actors")
}
