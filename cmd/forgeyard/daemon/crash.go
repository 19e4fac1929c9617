// How a harness crashes an actor of a real process.

package daemon

import (
	"net/http"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// crashEnv set to "1" lets whoever can reach the administration socket crash
// actors: POST /v1/debug/crash?path=PATH. It is for harnesses only, so it is no
// setting of the configuration.
const crashEnv = "FORGEYARD_CRASH"

// crashRoutes are for the administration socket; none unless crashes are allowed.
func (d *Daemon) crashRoutes() []access.Route {
	if !d.out.Actors.AllowCrash {
		return nil
	}
	return []access.Route{{
		Method: http.MethodPost, Pattern: "/v1/debug/crash", Permission: access.ClusterManage,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := d.system.Crash(r.URL.Query().Get("path")); err != nil {
				access.WriteError(w, access.ErrNotFound.Because("%v", err))
				return
			}
			w.WriteHeader(http.StatusNoContent)
		}),
	}}
}
