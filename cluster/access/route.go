// Package access describes HTTP routes as values: every package exports its own, the server mounts them.
package access

import "net/http"

// Permission is what a caller must hold (§224). Empty means the route is public.
type Permission string

// The permissions of coordination and of the job plane.
const (
	Public        Permission = ""
	ClusterRead   Permission = "cluster.read"
	ClusterManage Permission = "cluster.manage"
	RunSubmit     Permission = "run.submit"
	RunRead       Permission = "run.read"
)

// Route is one HTTP endpoint.
type Route struct {
	Method     string
	Pattern    string // net/http pattern without the method, e.g. "/v1/runs/{id}"
	Permission Permission
	Handler    http.Handler
}
