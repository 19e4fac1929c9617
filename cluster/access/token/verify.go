// Verification: one judgement of a token, each refusal with its own reason, none with the token in it.

package token

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/fsm"
)

const renew = "get a new one on a daemon's machine: forgeyard token issue"

// The reasons for which a token is refused; all are 401.
var (
	ErrMalformed    = &access.Fault{Status: http.StatusUnauthorized, Code: "FY-AUTH-002", Message: "the token is malformed, or not signed by EdDSA with a known key", Hint: renew}
	ErrUnknownKey   = &access.Fault{Status: http.StatusUnauthorized, Code: "FY-AUTH-003", Message: "the token is signed with a key that this daemon does not trust", Hint: "put the key's .pub file where api.tokens.keys points, on every daemon"}
	ErrOtherCluster = &access.Fault{Status: http.StatusUnauthorized, Code: "FY-AUTH-004", Message: "the token is for another cluster", Hint: "check --endpoint, and which token is used"}
	ErrTime         = &access.Fault{Status: http.StatusUnauthorized, Code: "FY-AUTH-005", Message: "the token is not valid at this time", Hint: renew + "; when it is new, check the clocks of both machines"}
)

// Verifier judges tokens for one cluster. Safe for concurrent use.
type Verifier struct {
	keys   *Keys
	parser *jwt.Parser
	clock  func() time.Time
}

// NewVerifier makes a verifier.
func NewVerifier(c fsm.ClusterID, keys *Keys, now func() time.Time) *Verifier {
	return &Verifier{keys: keys, clock: now, parser: jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), // before the key is used: no alg of the token's choice
		jwt.WithIssuer(Issuer), jwt.WithAllAudiences(c.String()), jwt.WithLeeway(Leeway), jwt.WithTimeFunc(now),
		jwt.WithExpirationRequired(), jwt.WithNotBeforeRequired(), jwt.WithIssuedAt(), jwt.WithStrictDecoding(),
	)}
}

// Verify returns who a token speaks for. Its errors are *access.Fault.
func (v *Verifier) Verify(text string) (access.Caller, error) {
	if len(text) > MaxSize {
		return access.Caller{}, ErrMalformed.Because("the token is larger than %d bytes", MaxSize)
	}
	if strings.ContainsAny(text, "\r\n") { // base64 passes over them: one signature, many texts
		return access.Caller{}, ErrMalformed
	}
	var c Claims
	if _, err := v.parser.ParseWithClaims(text, &c, v.key); err != nil {
		return access.Caller{}, v.reason(err, c)
	}
	if err := whole(c); err != nil {
		return access.Caller{}, err
	}
	return access.NewCaller(access.ByToken, c.Subject, c.ID, c.Permissions...), nil
}

// key finds the key that a token names. An extension that the token marks as
// critical is one that this build does not understand.
func (v *Verifier) key(t *jwt.Token) (any, error) {
	if _, critical := t.Header["crit"]; critical {
		return nil, ErrMalformed.Because("the token demands an extension that this daemon does not have")
	}
	id, ok := t.Header["kid"].(string)
	if !ok || id == "" {
		return nil, ErrMalformed.Because("the token names no key")
	}
	key, ok := v.keys.Find(id)
	if !ok {
		return nil, ErrUnknownKey
	}
	return key, nil
}

// whole checks what the library leaves open: the token has exactly one
// audience, a subject, an id, and no longer life than this build grants.
func whole(c Claims) error {
	switch {
	case len(c.Audience) != 1:
		return ErrOtherCluster.Because("the token is for %d clusters; it must be for one", len(c.Audience))
	case !validSubject(c.Subject) || c.ID == "" || len(c.ID) > MaxSubject || c.IssuedAt == nil:
		return ErrMalformed.Because("the token lacks a subject, an id or the time of its issue")
	case c.ExpiresAt.Sub(c.IssuedAt.Time) > MaxLifetime:
		return ErrTime.Because("the token lives longer than %s", MaxLifetime)
	}
	return nil
}

// reason turns the library's error into ours. What the token claims is told
// only after its signature was found good.
func (v *Verifier) reason(err error, c Claims) error {
	var own *access.Fault
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return ErrOtherCluster
	case errors.Is(err, jwt.ErrTokenExpired):
		return ErrTime.Because("the token expired %s ago", v.ago(c.ExpiresAt))
	case errors.Is(err, jwt.ErrTokenNotValidYet), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return ErrTime.Because("the token is not valid yet")
	case errors.Is(err, jwt.ErrTokenInvalidClaims):
		return ErrMalformed.Because("the token lacks a claim, or is of another issuer")
	}
	return ErrMalformed
}

func (v *Verifier) ago(t *jwt.NumericDate) string {
	return fmt.Sprint(v.clock().Sub(t.Time).Round(time.Second))
}
