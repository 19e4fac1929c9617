// Package token is the API's signed bearer tokens (§109, §113): who grants them, how they are signed, and how a daemon
// judges one. A token is an EdDSA JWT for one cluster, valid for at most twelve hours; nothing about it is stored.
//
// This file: what a token says, and the rules for granting one.
package token

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oklog/ulid/v2"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/fsm"
)

// Bounds of tokens.
const (
	Issuer      = "forgeyard"
	MaxLifetime = 12 * time.Hour   // from iat to exp; enforced when granting and again when verifying
	MinLifetime = time.Minute      // a shorter one would end within the leeway
	Leeway      = 30 * time.Second // how far the clocks of two machines may differ
	MaxSubject  = 64               // characters
	MaxSize     = 4096             // bytes of a token
)

// Claims is what a token says.
type Claims struct {
	jwt.RegisteredClaims
	Permissions []access.Permission `json:"perm"`
}

// Request asks for a token. KeyID names the public key whose private half will sign.
type Request struct {
	KeyID       string              `json:"kid"`
	Subject     string              `json:"subject"`
	Permissions []access.Permission `json:"permissions"`
	TTLSeconds  int64               `json:"ttl_seconds"`
}

// Grant is what the holder of the private key may sign, word for word.
type Grant struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	KeyID      string `json:"kid"`
	Claims     Claims `json:"claims"`
}

// ErrUnknownSigner (FY-AUTH-008): a token signed with that key would be refused by this daemon.
var ErrUnknownSigner = &access.Fault{
	Status: http.StatusUnprocessableEntity, Code: "FY-AUTH-008", Message: "this daemon does not hold the public key of that signing key",
	Hint: "put the .pub file that `forgeyard token keygen` wrote where api.tokens.keys points, on every daemon",
}

// Check reports what is wrong with a request.
func (r Request) Check() error {
	switch {
	case !validSubject(r.Subject):
		return access.ErrBadRequest.Because("the subject must have 1 to %d of letters, digits, '.', '_', '-', '@'", MaxSubject)
	case len(r.Permissions) == 0:
		return access.ErrBadRequest.Because("a token without a permission opens nothing; choose from %s", access.PermissionNames())
	case r.TTLSeconds > int64(MaxLifetime/time.Second) || r.TTLSeconds < int64(MinLifetime/time.Second): // as a duration it may overflow
		return access.ErrBadRequest.Because("the lifetime must be between %s and %s", MinLifetime, MaxLifetime)
	}
	for i, p := range r.Permissions {
		if !p.Known() {
			return access.ErrBadRequest.Because("unknown permission %q; choose from %s", p, access.PermissionNames())
		}
		if slices.Contains(r.Permissions[:i], p) {
			return access.ErrBadRequest.Because("permission %s is listed twice", p)
		}
	}
	return nil
}

// grant makes the claims for a request that Check accepts.
func (r Request) grant(c fsm.ClusterID, now time.Time) Claims {
	now = now.Truncate(time.Second)
	return Claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: Issuer, Subject: r.Subject, Audience: jwt.ClaimStrings{c.String()}, ID: ulid.Make().String(),
			IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now),
			ExpiresAt: jwt.NewNumericDate(now.Add(time.Duration(r.TTLSeconds) * time.Second)),
		},
		Permissions: r.Permissions,
	}
}

func validSubject(s string) bool {
	return s != "" && len(s) <= MaxSubject && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("._-@", r)
	})
}
