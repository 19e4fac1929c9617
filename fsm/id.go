// Identities: four ULID types that cannot be mixed up.

package fsm

import (
	"bytes"
	"fmt"

	"github.com/oklog/ulid/v2"
)

// ClusterID names one cluster for ever (§125). It is created once, at bootstrap.
type ClusterID ulid.ULID

// NodeID names one daemon for ever (§11). It is persisted, never derived from a
// hostname, and never reused after the node was removed.
type NodeID ulid.ULID

// IncarnationID names one process of a node (§12). Every start mints a new one,
// so a restarted process inherits nothing (§13).
type IncarnationID ulid.ULID

// RequestID names one proposal, so that a retry after an unknown outcome
// returns the first result instead of applying twice.
type RequestID ulid.ULID

// ParseClusterID reads the 26-character text form; the zero id is refused.
func ParseClusterID(s string) (ClusterID, error) { return parseID[ClusterID]("cluster id", s) }

// ParseNodeID reads the 26-character text form; the zero id is refused.
func ParseNodeID(s string) (NodeID, error) { return parseID[NodeID]("node id", s) }

// ParseIncarnationID reads the 26-character text form; the zero id is refused.
func ParseIncarnationID(s string) (IncarnationID, error) {
	return parseID[IncarnationID]("incarnation id", s)
}

// ParseRequestID reads the 26-character text form; the zero id is refused.
func ParseRequestID(s string) (RequestID, error) { return parseID[RequestID]("request id", s) }

func parseID[T ~[16]byte](what, s string) (T, error) {
	u, err := ulid.ParseStrict(s)
	if err != nil {
		return T{}, fmt.Errorf("%s %q: %w", what, s, err)
	}
	if u.IsZero() {
		return T{}, fmt.Errorf("%s %q: the zero id names nothing", what, s)
	}
	return T(u), nil
}

func (id ClusterID) String() string     { return ulid.ULID(id).String() }
func (id NodeID) String() string        { return ulid.ULID(id).String() }
func (id IncarnationID) String() string { return ulid.ULID(id).String() }
func (id RequestID) String() string     { return ulid.ULID(id).String() }

// IsZero reports whether the id names nothing.
func (id ClusterID) IsZero() bool { return id == ClusterID{} }

// IsZero reports whether the id names nothing.
func (id NodeID) IsZero() bool { return id == NodeID{} }

// IsZero reports whether the id names nothing.
func (id IncarnationID) IsZero() bool { return id == IncarnationID{} }

// IsZero reports whether the id names nothing.
func (id RequestID) IsZero() bool { return id == RequestID{} }

// Compare orders node ids by their bytes, which is the order of the text form.
func (id NodeID) Compare(other NodeID) int { return bytes.Compare(id[:], other[:]) }

// MarshalText writes the 26-character form (JSON, logs).
func (id ClusterID) MarshalText() ([]byte, error) { return ulid.ULID(id).MarshalText() }

// MarshalText writes the 26-character form (JSON, logs).
func (id NodeID) MarshalText() ([]byte, error) { return ulid.ULID(id).MarshalText() }

// MarshalText writes the 26-character form (JSON, logs).
func (id IncarnationID) MarshalText() ([]byte, error) { return ulid.ULID(id).MarshalText() }

// MarshalText writes the 26-character form (JSON, logs).
func (id RequestID) MarshalText() ([]byte, error) { return ulid.ULID(id).MarshalText() }

// UnmarshalText reads the 26-character form; the empty text is the zero id.
func (id *ClusterID) UnmarshalText(b []byte) error { return unmarshalID(id, b, ParseClusterID) }

// UnmarshalText reads the 26-character form; the empty text is the zero id.
func (id *NodeID) UnmarshalText(b []byte) error { return unmarshalID(id, b, ParseNodeID) }

// UnmarshalText reads the 26-character form; the empty text is the zero id.
func (id *IncarnationID) UnmarshalText(b []byte) error { return unmarshalID(id, b, ParseIncarnationID) }

// UnmarshalText reads the 26-character form; the empty text is the zero id.
func (id *RequestID) UnmarshalText(b []byte) error { return unmarshalID(id, b, ParseRequestID) }

func unmarshalID[T ~[16]byte](dst *T, b []byte, parse func(string) (T, error)) error {
	if len(b) == 0 || string(b) == (ulid.ULID{}).String() {
		*dst = T{}
		return nil
	}
	id, err := parse(string(b))
	if err == nil {
		*dst = id
	}
	return err
}
