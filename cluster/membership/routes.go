// HTTP routes of membership (§222, §224).

package membership

import (
	"net/http"

	"github.com/forgeyard/forgeyard/cluster/access"
)

const apiVersion = "forgeyard.dev/v1"

// Routes are POST /v1/cluster/add and POST /v1/cluster/promote.
func Routes(r *Registrar) []access.Route {
	return []access.Route{
		{Method: http.MethodPost, Pattern: "/v1/cluster/add", Permission: access.ClusterManage, Handler: http.HandlerFunc(r.serveAdd)},
		{Method: http.MethodPost, Pattern: "/v1/cluster/promote", Permission: access.ClusterManage, Handler: http.HandlerFunc(r.servePromote)},
	}
}

func (r *Registrar) serveAdd(w http.ResponseWriter, req *http.Request) {
	var in AddRequest
	if err := access.ReadJSON(w, req, &in); err != nil {
		access.WriteError(w, err)
		return
	}
	added, err := r.Add(req.Context(), in, access.CallerOf(req.Context()).String())
	if err != nil {
		access.WriteError(w, err)
		return
	}
	access.WriteJSON(w, http.StatusCreated, added)
}

func (r *Registrar) servePromote(w http.ResponseWriter, req *http.Request) {
	var in PromoteRequest
	if err := access.ReadJSON(w, req, &in); err != nil {
		access.WriteError(w, err)
		return
	}
	p, err := r.Promote(req.Context(), in, access.CallerOf(req.Context()).String())
	if err != nil {
		access.WriteError(w, err)
		return
	}
	access.WriteJSON(w, http.StatusOK, p)
}
