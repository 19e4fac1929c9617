// Snapshots: the whole state with its position, versioned and checksummed (§51–§53, §149).

package fsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// A snapshot is
//
//	magic "FYSN" | format u8 | schema u32 | SHA-256 of all the rest | payload
//
// with integers in big endian and the payload {1: position, 2: state} in
// core-deterministic CBOR. The versions stand before the checksum's field, so a
// build that cannot read the payload can still say which version it met.
const (
	snapshotMagic       = "FYSN"
	snapshotFormat byte = 1

	snapshotVersions = len(snapshotMagic) + 1 + 4
	snapshotHeader   = snapshotVersions + sha256.Size
)

type snapshot struct {
	At    entry `cbor:"1,keyasint"`
	State body  `cbor:"2,keyasint"`
}

// EncodeSnapshot writes the state and its position; ErrTooLarge above MaxSnapshot.
func (s *State) EncodeSnapshot() ([]byte, error) {
	payload, err := encMode.Marshal(snapshot{At: s.at, State: s.body})
	if err != nil {
		return nil, fmt.Errorf("encode snapshot: %w", err)
	}
	return seal(s.body.Schema, payload)
}

// DecodeSnapshot reads what EncodeSnapshot wrote: ErrTooLarge above
// MaxSnapshot, ErrIncompatible for another format or schema, ErrIntegrity when
// any byte changed, ErrMalformed when the content breaks an invariant of State.
func DecodeSnapshot(data []byte) (*State, error) {
	payload, err := unseal(data)
	if err != nil {
		return nil, err
	}
	var snap snapshot
	if err := snapshotMode.Unmarshal(payload, &snap); err != nil {
		return nil, fmt.Errorf("snapshot: %w: %w", ErrMalformed, err)
	}
	if err := snap.State.checkInvariants(); err != nil {
		return nil, fmt.Errorf("snapshot: %w: %w", ErrMalformed, err)
	}
	s := &State{body: snap.State, at: snap.At}
	again, err := s.EncodeSnapshot()
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again, data) {
		return nil, fmt.Errorf("snapshot is not in canonical form: %w", ErrMalformed)
	}
	return s, nil
}

func seal(schema uint32, payload []byte) ([]byte, error) {
	if n := snapshotHeader + len(payload); n > MaxSnapshot {
		return nil, fmt.Errorf("snapshot of %d bytes, the limit is %d: %w", n, MaxSnapshot, ErrTooLarge)
	}
	out := make([]byte, 0, snapshotHeader+len(payload))
	out = append(out, snapshotMagic...)
	out = append(out, snapshotFormat)
	out = binary.BigEndian.AppendUint32(out, schema)
	sum := checksum(out, payload)
	out = append(out, sum[:]...)
	return append(out, payload...), nil
}

func unseal(data []byte) ([]byte, error) {
	if len(data) > MaxSnapshot {
		return nil, fmt.Errorf("snapshot of %d bytes, the limit is %d: %w", len(data), MaxSnapshot, ErrTooLarge)
	}
	if len(data) < snapshotHeader || string(data[:len(snapshotMagic)]) != snapshotMagic {
		return nil, fmt.Errorf("snapshot header: %w", ErrMalformed)
	}
	versions, payload := data[:snapshotVersions], data[snapshotHeader:]
	if sum := checksum(versions, payload); !bytes.Equal(sum[:], data[snapshotVersions:snapshotHeader]) {
		return nil, fmt.Errorf("snapshot: %w", ErrIntegrity)
	}
	format := versions[len(snapshotMagic)]
	schema := binary.BigEndian.Uint32(versions[len(snapshotMagic)+1:])
	if format != snapshotFormat || schema != SchemaVersion {
		return nil, fmt.Errorf("snapshot format %d, schema %d, this build knows format %d, schema %d: %w",
			format, schema, snapshotFormat, SchemaVersion, ErrIncompatible)
	}
	return payload, nil
}

func checksum(versions, payload []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write(versions)
	h.Write(payload)
	return [sha256.Size]byte(h.Sum(nil))
}

// encodeBody cannot fail: a body holds integers, byte arrays and text that
// check has validated, none of which has an encoding error.
func encodeBody(b body) []byte {
	out, err := encMode.Marshal(b)
	if err != nil {
		panic(fmt.Sprintf("encode coordination state: %v", err))
	}
	return out
}
