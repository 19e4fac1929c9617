// Package cell makes the state that guards share.
package cell

import "github.com/forgeyard/forgeyard/cluster"

// Cell is forged.
var Cell cluster.cell // want: name cell not exported by package cluster
