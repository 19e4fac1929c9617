// The caller: who makes a request and what it may do, carried by the request's context.

package access

import (
	"context"
	"slices"
)

// Means is how a caller proved who it is.
type Means string

// The ways to be known.
const (
	Anonymous     Means = "anonymous"   // it did not; public routes only
	ByLoopback    Means = "loopback"    // it runs on this machine, and nothing else is demanded
	BySocket      Means = "socket"      // it could open the administration socket
	ByToken       Means = "token"       // a signed token
	ByCertificate Means = "certificate" // a client certificate of this cluster
)

// Caller is who makes a request. The zero Caller may do nothing.
type Caller struct {
	Means Means
	Name  string // subject of the token or certificate, "" when there is none
	ID    string // id of the token, or fingerprint of the certificate; never the credential itself

	permissions []Permission
}

// NewCaller makes a caller with permissions.
func NewCaller(m Means, name, id string, permissions ...Permission) Caller {
	return Caller{Means: m, Name: name, ID: id, permissions: slices.Clone(permissions)}
}

// May reports whether the caller holds a permission. Nobody holds one that is not Known.
func (c Caller) May(p Permission) bool { return p.Known() && slices.Contains(c.permissions, p) }

// String names the caller in logs and audit records.
func (c Caller) String() string {
	if c.Name == "" {
		return string(c.Means)
	}
	return string(c.Means) + ":" + c.Name
}

type callerKey struct{}

// WithCaller notes who makes a request.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns who makes the request that ctx belongs to; the anonymous caller when nobody noted one.
func CallerOf(ctx context.Context) Caller {
	if c, ok := ctx.Value(callerKey{}).(Caller); ok {
		return c
	}
	return Caller{Means: Anonymous}
}
