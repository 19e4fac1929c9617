// The HTTP routes of the status model.

package health

import (
	"context"
	"net/http"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// Source gathers the input of a status; an Observer is one.
type Source interface {
	// Observe answers within AskTimeout, with or without a quorum.
	Observe(ctx context.Context) Input
}

// Routes returns the read routes of the cluster. They answer 200 also without a
// quorum: the headline says how the cluster is, the HTTP status that it was asked.
func Routes(src Source) []access.Route {
	get := func(pattern string, pick func(ClusterStatus) any) access.Route {
		return access.Route{
			Method: http.MethodGet, Pattern: pattern, Permission: access.ClusterRead,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				access.WriteJSON(w, http.StatusOK, pick(Build(src.Observe(r.Context()))))
			}),
		}
	}
	return []access.Route{
		get("/v1/cluster/status", func(s ClusterStatus) any { return s }),
		get("/v1/cluster/members", func(s ClusterStatus) any { return s.MemberList() }),
		get("/v1/cluster/roles", func(s ClusterStatus) any { return s.RoleList() }),
	}
}
