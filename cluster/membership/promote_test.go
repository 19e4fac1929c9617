// The pure parts of promotion, and the HTTP routes.

package membership

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/fsm"
)

func TestCanPromote(t *testing.T) {
	now := time.Now()
	inc := cluster.NewIncarnationID()
	good := func() Progress {
		return Progress{
			Member:    fsm.Member{Node: cluster.NewNodeID(), Incarnation: inc, Name: "n", Role: fsm.Learner, State: fsm.Active, Protocol: fsm.VersionRange{Min: 1, Max: 2}},
			LastIndex: 1000, Peer: cluster.Peer{MatchIndex: 1000 - MaxLag, LastContact: now.Add(-MaxSilence)}, Now: now,
			Report: cluster.NodeReport{HealthReport: cluster.HealthReport{Incarnation: inc}, Received: now.Add(-MaxSilence)},
		}
	}
	protocol := fsm.VersionRange{Min: 2, Max: 3}
	require.NoError(t, CanPromote(good(), protocol))
	for want, change := range map[string]func(*Progress){
		"17 entries behind (limit 16)":      func(p *Progress) { p.Peer.MatchIndex-- },
		"last answer is 2.001s old":         func(p *Progress) { p.Peer.LastContact = now.Add(-MaxSilence - time.Millisecond) },
		"answered no append yet":            func(p *Progress) { p.Peer = cluster.Peer{} },
		"health report is 2.001s old":       func(p *Progress) { p.Report.Received = now.Add(-MaxSilence - time.Millisecond) },
		"reported no health yet":            func(p *Progress) { p.Report = cluster.NodeReport{} },
		"of another incarnation":            func(p *Progress) { p.Report.Incarnation = cluster.NewIncarnationID() },
		"only an Active learner":            func(p *Progress) { p.Member.State = fsm.Joining },
		"is a Observer; only a Learner":     func(p *Progress) { p.Member.Role = fsm.Observer },
		"speaks protocol 4 to 5, this node": func(p *Progress) { p.Member.Protocol = fsm.VersionRange{Min: 4, Max: 5} },
	} {
		p := good()
		change(&p)
		err := CanPromote(p, protocol)
		require.ErrorIs(t, err, ErrNotReady, want)
		require.ErrorContains(t, err, want)
	}
}

func TestResolve(t *testing.T) {
	a := fsm.Member{Node: fsm.NodeID{1}, Name: "build-a"}
	b := fsm.Member{Node: fsm.NodeID{1, 1}, Name: "build"}
	v := fsm.View{Members: []fsm.Member{a, b}}
	for ref, want := range map[string]fsm.Member{
		"build": b, "build-": a, a.Node.String(): a, strings.ToLower(b.Node.String()): b,
	} {
		m, err := Resolve(v, ref)
		require.NoError(t, err, ref)
		require.Equal(t, want, m, ref)
	}
	for _, ref := range []string{"", "bui", "0", "other"} {
		_, err := Resolve(v, ref)
		require.ErrorIs(t, err, ErrNoMember, ref)
	}
}

func TestRoutes(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(1)
		r := f.nodes[0].registrar
		ctx := access.WithCaller(t.Context(), access.NewCaller(access.ByToken, "ops", "token-1"))
		serve := func(pattern, body string) *httptest.ResponseRecorder {
			for _, route := range Routes(r) {
				require.Equal(t, http.MethodPost, route.Method)
				require.Equal(t, access.ClusterManage, route.Permission)
				if route.Pattern == pattern {
					w := httptest.NewRecorder()
					route.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, pattern, strings.NewReader(body)).WithContext(ctx))
					return w
				}
			}
			require.FailNow(t, "no such route", pattern)
			return nil
		}
		id := cluster.NewNodeID().String()
		w := serve("/v1/cluster/add", `{"node":"`+id+`","name":"n2","ttl":"1h"}`)
		require.Equal(t, http.StatusCreated, w.Code, w.Body)
		require.Contains(t, w.Body.String(), `"ttl_seconds":3600`)
		require.Contains(t, w.Body.String(), `"token":"fyj_`)
		for body, code := range map[string]int{
			`{"node":"` + id + `","ttl":"48h"}`:         http.StatusForbidden,
			`{"node":"` + f.nodes[0].id.String() + `"}`: http.StatusForbidden,
			`{"name":"n2"}`:        http.StatusConflict,
			`{"node":"not an id"}`: http.StatusBadRequest,
			`{"node":"` + id + `","command":"PromoteVoter"}`: http.StatusBadRequest,
		} {
			require.Equal(t, code, serve("/v1/cluster/add", body).Code, body)
		}
		w = serve("/v1/cluster/promote", `{"node":"nobody"}`)
		require.Equal(t, http.StatusConflict, w.Code)
		require.Contains(t, w.Body.String(), ErrNoMember.Code)
		w = serve("/v1/cluster/promote", `{"node":"node-1"}`)
		require.Equal(t, http.StatusOK, w.Code)
		require.Contains(t, w.Body.String(), `"already":true`)
		// Every act is on record, with what became of it.
		require.Equal(t, []string{"refused", "accepted"}, f.audit.outcomes("cluster.promote"))
		require.Len(t, f.audit.outcomes("cluster.add"), 4)
		for _, row := range f.audit.rows {
			require.Equal(t, "token:ops", row.Actor, row.Action)
		}
	})
}
