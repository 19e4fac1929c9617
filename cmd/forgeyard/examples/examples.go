// Package examples embeds the runs that a newcomer can start.
package examples

import _ "embed"

// SelfBuild is a run that vets and builds this very module; its jobs
// expect SOURCE to name the module's folder.
//
//go:embed selfbuild.ron
var SelfBuild []byte

// Pipeline is a run that takes this very module as its source: it vets and
// builds it, and tries what was built. Its jobs need GOCACHE and GOMODCACHE, or HOME.
//
//go:embed pipeline.ron
var Pipeline []byte
