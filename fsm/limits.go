// The bounds of coordination state (§47, §182): every one of them, in one place.

package fsm

// Bounds of commands, state and snapshots. Together they keep the state below
// MaxState at its maximum, so a state that Apply produced always encodes.
const (
	MaxCommand  = 8 << 10   // bytes of one encoded proposal
	MaxState    = 256 << 10 // bytes of the encoded state
	MaxSnapshot = 1 << 20   // bytes of a snapshot, header included

	MaxMembers = 64   // members at one time
	MaxRemoved = 4096 // tombstones: ids that may never return
	MaxRecent  = 512  // requests whose result a retry still finds

	MaxName     = 64  // bytes of a cluster or member name
	MaxBuild    = 64  // bytes of a build label
	MaxCode     = 32  // bytes of a release code
	MaxReason   = 256 // bytes of a release reason
	MaxEndpoint = 259 // bytes of a 253-byte host name, a colon and a port
)

// FirstGeneration is the recovery generation of a new cluster.
const FirstGeneration Generation = 1
