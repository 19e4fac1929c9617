// Fresh identities. fsm itself draws no randomness (§48).

package cluster

import (
	"github.com/oklog/ulid/v2"

	"github.com/forgeyard/forgeyard/fsm"
)

// NewClusterID mints the id of a new cluster; it is done once, when its authority is made (§125).
func NewClusterID() fsm.ClusterID { return fsm.ClusterID(ulid.Make()) }

// NewNodeID mints a node id; it is done once, when the node's certificate is issued (§11).
func NewNodeID() fsm.NodeID { return fsm.NodeID(ulid.Make()) }

// NewIncarnationID mints the id of this process; every start needs a new one (§12).
func NewIncarnationID() fsm.IncarnationID { return fsm.IncarnationID(ulid.Make()) }

// NewRequestID mints the id of one proposal. Retries of it keep the id.
func NewRequestID() fsm.RequestID { return fsm.RequestID(ulid.Make()) }
