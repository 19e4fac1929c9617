// Granting: a daemon decides what a token may say and records it; it cannot sign, so it cannot be made to mint alone.

package token

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/fsm"
)

// auditBound is how long a grant may take to be recorded.
const auditBound = 2 * time.Second

// Granter answers requests for tokens.
type Granter struct {
	Cluster fsm.ClusterID
	Node    fsm.NodeID // this daemon, for the record
	Epoch   func() fsm.Epoch
	Keys    *Keys // nil when api.tokens.keys is not configured
	Audit   cluster.Audit
	Now     func() time.Time
}

// Routes is POST /v1/tokens/grants. It belongs on the administration socket alone.
func (g Granter) Routes() []access.Route {
	return []access.Route{{
		Method: http.MethodPost, Pattern: "/v1/tokens/grants", Permission: access.ClusterManage, Handler: http.HandlerFunc(g.serve),
	}}
}

func (g Granter) serve(w http.ResponseWriter, r *http.Request) {
	var in Request
	if err := access.ReadJSON(w, r, &in); err != nil {
		access.WriteError(w, err)
		return
	}
	out, err := g.Grant(r.Context(), in)
	if err != nil {
		access.WriteError(w, err)
		return
	}
	access.WriteJSON(w, http.StatusCreated, out)
}

// Grant checks a request, records it, and answers with what may be signed.
// There is no token without its record: while PostgreSQL is down the socket
// itself is the way to administer the fleet.
func (g Granter) Grant(ctx context.Context, in Request) (Grant, error) {
	if err := in.Check(); err != nil {
		return Grant{}, err
	}
	if g.Keys == nil {
		return Grant{}, ErrUnknownSigner.Because("this daemon accepts no tokens: api.tokens.keys is not set")
	}
	if _, ok := g.Keys.Find(in.KeyID); !ok {
		return Grant{}, ErrUnknownSigner
	}
	claims := in.grant(g.Cluster, g.Now())
	ctx, cancel := context.WithTimeout(ctx, auditBound)
	defer cancel()
	if err := g.Audit.Record(ctx, cluster.AuditRecord{
		Actor: access.CallerOf(ctx).String(), Action: "token", Target: in.Subject, Outcome: "accepted",
		Detail: describe(claims, in.KeyID), Node: g.Node, Epoch: g.Epoch(),
	}); err != nil {
		return Grant{}, fmt.Errorf("token: %w", err)
	}
	return Grant{APIVersion: "forgeyard.dev/v1", Kind: "TokenGrant", KeyID: in.KeyID, Claims: claims}, nil
}

func describe(c Claims, key string) string {
	names := make([]string, len(c.Permissions))
	for i, p := range c.Permissions {
		names[i] = string(p)
	}
	return fmt.Sprintf("id %s, %s, until %s, key %s", c.ID, strings.Join(names, ","), c.ExpiresAt.UTC().Format(time.RFC3339), key)
}
