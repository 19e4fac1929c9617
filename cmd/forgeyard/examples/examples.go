// Package examples embeds the runs that a newcomer can start.
package examples

import _ "embed"

// SelfBuild is a run that vets and builds this very module; its jobs
// expect SOURCE to name the module's folder.
//
//go:embed selfbuild.ron
var SelfBuild []byte
