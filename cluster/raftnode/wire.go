// Bodies and errors of the control family, for this package and those that serve beside it.

package raftnode

import (
	"errors"
	"sync"

	"github.com/fxamacker/cbor/v2"

	"github.com/forgeyard/forgeyard/cluster"
)

// ErrMalformed: a request of the control family that this build cannot read.
var ErrMalformed = &cluster.Error{Kind: cluster.IncompatibleVersion, Code: "FY-RAFT-010", Message: "the request cannot be read",
	Hint: "upgrade the older build"}

// requestMode is built once and safe for concurrent use.
var requestMode = sync.OnceValues(func() (cbor.DecMode, error) {
	return cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		MaxNestedLevels: 8, MaxArrayElements: 256, MaxMapPairs: 256,
	}.DecMode()
})

// DecodeRequest reads a request's CBOR body within bounds; the transport has
// bounded its size. ErrMalformed otherwise.
func DecodeRequest(body []byte, into any) error {
	mode, err := requestMode()
	if err == nil {
		err = mode.Unmarshal(body, into)
	}
	if err != nil {
		return ErrMalformed.Wrap(err, "")
	}
	return nil
}

// CallError gives the error of a failed call its kind and code back. A call
// that may have reached the peer comes back with OutcomeUnknown.
func CallError(err error) error {
	var own *cluster.Error
	var wire interface {
		WireFields() (kind uint8, code, message, hint string, outcomeUnknown bool)
	}
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own
	case errors.As(err, &wire):
		e := cluster.FromWireFields(wire.WireFields())
		e.Err = err
		return e
	}
	return cluster.ErrTimeout.Wrap(err, "the peer did not answer")
}
