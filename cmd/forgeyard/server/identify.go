// Who calls: a signed token, a client certificate, or on an open loopback listener whoever runs on this machine.

package server

import (
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/cluster/access/token"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// Access is how callers on the API's listener prove who they are. With neither
// an identity nor a verifier every local process is trusted with everything.
type Access struct {
	Identity      *pki.Identity   // serve TLS with it and accept admin certificates of its cluster; nil: plain HTTP
	Tokens        *token.Verifier // nil: no token is accepted
	Hosts         []string        // names of this machine besides its addresses
	PublicMetrics bool            // /metrics needs no permission
}

// The refusals of callers. 401: it is not known who calls; 403: it is, and that is not enough.
var (
	errUnknown = &access.Fault{
		Status: http.StatusUnauthorized, Code: "FY-AUTH-001", Message: "this daemon wants to know who calls",
		Hint: "give a token with --token-file or FORGEYARD_TOKEN, or an admin certificate with --cert and --cert-key",
	}
	errDenied = &access.Fault{
		Status: http.StatusForbidden, Code: "FY-AUTH-006", Message: "the caller lacks the permission",
		Hint: "get a token that has it: forgeyard token issue --permission …",
	}
	errHolder = &access.Fault{
		Status: http.StatusForbidden, Code: "FY-AUTH-007", Message: "certificates of this kind open nothing on the API",
		Hint: "people use a certificate of kind admin or a token; nodes and agents have their own ports",
	}
)

func (a Access) open() bool { return a.Identity == nil && a.Tokens == nil }

// identify names the caller of a request. A token is a choice made for this
// request, so it goes before the certificate of the connection; one that is
// refused is never made good by the other. The error is an *access.Fault.
func (a Access) identify(r *http.Request, now time.Time) (access.Caller, error) {
	switch header := r.Header["Authorization"]; {
	case a.open():
		return access.NewCaller(access.ByLoopback, "", "", access.Permissions()...), nil
	case len(header) > 0:
		return a.byToken(header)
	case r.TLS != nil && len(r.TLS.PeerCertificates) > 0:
		return a.byCertificate(r, now)
	}
	return access.Caller{}, errUnknown
}

func (a Access) byToken(header []string) (access.Caller, error) {
	scheme, text, _ := strings.Cut(header[0], " ")
	switch {
	case a.Tokens == nil:
		return access.Caller{}, errUnknown.Because("this daemon accepts admin certificates only, no tokens")
	case len(header) != 1 || !strings.EqualFold(scheme, "Bearer") || text == "":
		return access.Caller{}, token.ErrMalformed.Because("the Authorization header is not one bearer token")
	}
	return a.Tokens.Verify(text)
}

func (a Access) byCertificate(r *http.Request, now time.Time) (access.Caller, error) {
	chain := r.TLS.PeerCertificates
	subject, err := a.Identity.VerifyClient(chain, now)
	if err != nil {
		var why *pki.Error
		if !errors.As(err, &why) {
			return access.Caller{}, errUnknown
		}
		return access.Caller{}, &access.Fault{Status: http.StatusUnauthorized, Code: why.Code, Message: why.Message, Hint: why.Hint}
	}
	if subject.Kind != pki.KindAdmin {
		return access.Caller{}, errHolder.Because("a certificate of kind %s opens nothing on the API", subject.Kind)
	}
	print := pki.Fingerprint(chain[0])
	return access.NewCaller(access.ByCertificate, subject.ID, hex.EncodeToString(print[:]), access.Permissions()...), nil
}
