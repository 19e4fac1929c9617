// Package examples embeds the run that a newcomer can start.
package examples

import _ "embed"

// Pipeline is a run that takes this very module as its source: it vets and
// builds it, and tries what was built. Its jobs need GOCACHE and GOMODCACHE, or HOME.
//
//go:embed pipeline.ron
var Pipeline []byte
