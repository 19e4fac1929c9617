// The suite that every coordination engine passes.

package raftnode

import (
	"testing"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/testkit/conformance"
)

func TestBackendConformance(t *testing.T) {
	conformance.Backend(t, func(t *testing.T) cluster.Backend { return newFleet(t).add().start(bootstrap, alone) })
}
