// Codec: CBOR with strict limits for everything but the Raft family's own frames.

package transport

import "github.com/fxamacker/cbor/v2"

// codec encodes deterministically and decodes within bounds. Unknown fields
// are ignored, so that a newer build may add some.
type codec struct {
	enc cbor.EncMode
	dec cbor.DecMode
}

func newCodec() (*codec, error) {
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		return nil, err
	}
	dec, err := cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		MaxNestedLevels:  16,
		MaxArrayElements: 64 << 10,
		MaxMapPairs:      64 << 10,
	}.DecMode()
	if err != nil {
		return nil, err
	}
	return &codec{enc: enc, dec: dec}, nil
}

// encode gives the CBOR form; nil encodes as nothing.
func (c *codec) encode(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	return c.enc.Marshal(v)
}

// decode reads into v; a nil v ignores the bytes.
func (c *codec) decode(b []byte, v any) error {
	if v == nil {
		return nil
	}
	if err := c.dec.Unmarshal(b, v); err != nil {
		return &Error{Code: CodeMalformed, Err: err}
	}
	return nil
}
