// Package access describes HTTP routes as values, who calls them and what a caller may do: every package exports its
// routes, the server mounts them and lets nobody through that lacks the permission a route names (§224).
//
// This file: permissions and routes.
package access

import (
	"net/http"
	"slices"
	"strings"
)

// Permission is what a caller must hold to use a route (§224). No permission implies another.
type Permission string

// The permissions of coordination and of the job plane.
const (
	Public        Permission = "" // for the few routes that the server's own list of public ones names
	ClusterRead   Permission = "cluster.read"
	ClusterManage Permission = "cluster.manage"
	RunSubmit     Permission = "run.submit"
	RunRead       Permission = "run.read"
	RunCancel     Permission = "run.cancel"
)

// Permissions lists every permission that a caller can hold.
func Permissions() []Permission {
	return []Permission{RunSubmit, RunRead, RunCancel, ClusterRead, ClusterManage}
}

// Known reports whether p is one that a caller can hold.
func (p Permission) Known() bool { return slices.Contains(Permissions(), p) }

// PermissionNames is the list of permissions for people.
func PermissionNames() string {
	var names []string
	for _, p := range Permissions() {
		names = append(names, string(p))
	}
	return strings.Join(names, ", ")
}

// Route is one HTTP endpoint. The server does what the fields ask for before
// the handler runs; a handler that runs has a caller with the permission.
type Route struct {
	Method     string
	Pattern    string // net/http pattern without the method, e.g. "/v1/runs/{id}"
	Permission Permission
	Handler    http.Handler

	// Upload is the largest body in bytes of a route that takes something else
	// than JSON; 0 is a JSON route under the server's body limit. An upload may
	// take any time as long as bytes keep coming.
	Upload int64
	// Stream marks an answer without an end (server-sent events). It may last
	// for ever, each write has its own deadline, and the request's context ends
	// when the server stops.
	Stream bool
}
