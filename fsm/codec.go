// The wire form of proposals: a version byte and canonical CBOR, refused unless exact (§151).

package fsm

import (
	"bytes"
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// CommandVersion is the version byte in front of every encoded proposal.
const CommandVersion byte = 1

var (
	encMode = mustEncMode()
	// No command nests deeper than a member's version range or has more than 16 fields.
	commandMode = mustDecMode(4, 16, 16)
	// The longest list of a snapshot is the tombstones.
	snapshotMode = mustDecMode(6, MaxRemoved, 32)
)

func mustEncMode() cbor.EncMode {
	opts := cbor.CoreDetEncOptions()
	opts.NilContainers = cbor.NilContainerAsEmpty // equal states must have equal bytes
	m, err := opts.EncMode()
	if err != nil {
		panic(err)
	}
	return m
}

func mustDecMode(depth, elements, pairs int) cbor.DecMode {
	m, err := cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		UTF8:              cbor.UTF8RejectInvalid,
		MaxNestedLevels:   depth,
		MaxArrayElements:  elements,
		MaxMapPairs:       pairs,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return m
}

// envelope is what follows the version byte.
type envelope struct {
	_       struct{} `cbor:",toarray"`
	Kind    CommandKind
	Request RequestID
	Body    cbor.RawMessage
}

// EncodeProposal writes a proposal: CommandVersion, then [kind, request, body]
// in core-deterministic CBOR. It refuses what Apply would refuse in any state,
// and more than MaxCommand bytes (ErrTooLarge).
func EncodeProposal(p Proposal) ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	raw, err := encMode.Marshal(p.Command)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", p.Command.Kind(), err)
	}
	env, err := encMode.Marshal(envelope{Kind: p.Command.Kind(), Request: p.Request, Body: raw})
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", p.Command.Kind(), err)
	}
	if len(env)+1 > MaxCommand {
		return nil, fmt.Errorf("%s of %d bytes, the limit is %d: %w", p.Command.Kind(), len(env)+1, MaxCommand, ErrTooLarge)
	}
	return append([]byte{CommandVersion}, env...), nil
}

// DecodeProposal reads what EncodeProposal wrote. An unknown version or kind is
// ErrIncompatible; anything that this build would not have written byte for
// byte is ErrMalformed; more than MaxCommand bytes is ErrTooLarge.
func DecodeProposal(data []byte) (Proposal, error) {
	if len(data) > MaxCommand {
		return Proposal{}, fmt.Errorf("command of %d bytes, the limit is %d: %w", len(data), MaxCommand, ErrTooLarge)
	}
	if len(data) == 0 {
		return Proposal{}, fmt.Errorf("empty command: %w", ErrMalformed)
	}
	if data[0] != CommandVersion {
		return Proposal{}, fmt.Errorf("command version %d, this build knows %d: %w", data[0], CommandVersion, ErrIncompatible)
	}
	var env envelope
	if err := commandMode.Unmarshal(data[1:], &env); err != nil {
		return Proposal{}, fmt.Errorf("command envelope: %w: %w", ErrMalformed, err)
	}
	cmd, err := decodeCommand(env.Kind, env.Body)
	if err != nil {
		return Proposal{}, err
	}
	p := Proposal{Request: env.Request, Command: cmd}
	// One meaning has one encoding. This also refuses what a lenient decoder
	// lets pass: missing fields, long integers, ids of another length.
	again, err := EncodeProposal(p)
	if err != nil {
		return Proposal{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if !bytes.Equal(again, data) {
		return Proposal{}, fmt.Errorf("%s is not in canonical form: %w", env.Kind, ErrMalformed)
	}
	return p, nil
}

func decodeCommand(kind CommandKind, body []byte) (Command, error) {
	switch kind {
	case KindInitCluster:
		return decodeAs[InitCluster](body)
	case KindAddLearner:
		return decodeAs[AddLearner](body)
	case KindPromoteVoter:
		return decodeAs[PromoteVoter](body)
	case KindRemoveMember:
		return decodeAs[RemoveMember](body)
	case KindUpdateMember:
		return decodeAs[UpdateMember](body)
	case KindAssignRole:
		return decodeAs[AssignRole](body)
	case KindBumpEpoch:
		return decodeAs[BumpEpoch](body)
	case KindReleaseRole:
		return decodeAs[ReleaseRole](body)
	case KindSetMaintenance:
		return decodeAs[SetMaintenance](body)
	case KindStartExclusive:
		return decodeAs[StartExclusiveOperation](body)
	case KindCompleteExclusive:
		return decodeAs[CompleteExclusiveOperation](body)
	case KindActivateFeature:
		return decodeAs[ActivateFeature](body)
	}
	return nil, fmt.Errorf("command kind %d: %w", uint8(kind), ErrIncompatible)
}

func decodeAs[C Command](body []byte) (Command, error) {
	var c C
	if err := commandMode.Unmarshal(body, &c); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", c.Kind(), ErrMalformed, err)
	}
	return c, nil
}
