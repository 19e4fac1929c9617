// Frames: what is refused before anything is allocated, and what a stranger's bytes can do.

package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/corpus"
)

func families() []Family {
	return []Family{familyHello, FamilyRaft, FamilyControl, FamilyDeploy, FamilyAgent}
}

func TestFrameRoundTrip(t *testing.T) {
	for _, fam := range families() {
		for _, n := range []int{0, 1, growStep - 1, growStep, growStep + 1, fam.MaxFrame()} {
			if n > fam.MaxFrame() {
				continue
			}
			payload := bytes.Repeat([]byte{3}, n)
			b, err := appendFrame(nil, fam, payload)
			require.NoError(t, err)
			got, err := readFrame(bytes.NewReader(b), fam, fam.MaxFrame())
			require.NoError(t, err)
			require.True(t, bytes.Equal(payload, got))
		}
		_, err := appendFrame(nil, fam, make([]byte, fam.MaxFrame()+1))
		require.ErrorIs(t, err, &Error{Code: CodeTooLarge})
	}
}

func TestFrameRejects(t *testing.T) {
	header := func(fam, version byte, n uint32) []byte {
		return binary.BigEndian.AppendUint32([]byte{fam, version}, n)
	}
	cases := map[string]struct {
		b    []byte
		want Code
	}{
		"family 0":             {header(0, 1, 0), CodeUnknownFamily},
		"unknown family":       {header(9, 1, 0), CodeUnknownFamily},
		"version 0":            {header(1, 0, 0), CodeVersion},
		"newer version":        {header(1, 2, 0), CodeVersion},
		"another family":       {header(2, 1, 0), CodeWrongFamily},
		"one byte too long":    {header(1, 1, uint32(FamilyRaft.MaxFrame())+1), CodeTooLarge},
		"the longest length":   {header(1, 1, 1<<32-1), CodeTooLarge},
		"ends in the header":   {header(1, 1, 4)[:5], CodeMalformed},
		"ends before payload":  {header(1, 1, 4), CodeMalformed},
		"ends inside payload":  {append(header(1, 1, 4), 1, 2, 3), CodeMalformed},
		"ends in the 2nd step": {append(header(1, 1, 2*growStep), make([]byte, growStep)...), CodeMalformed},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := readFrame(bytes.NewReader(c.b), FamilyRaft, FamilyRaft.MaxFrame())
			require.ErrorIs(t, err, &Error{Code: c.want})
		})
	}
	_, err := readFrame(bytes.NewReader(nil), FamilyRaft, FamilyRaft.MaxFrame())
	require.Equal(t, io.EOF, err, "a stream that ends between frames is no fault")
}

// stalled yields nothing: the peer claimed a length and sends no payload.
type stalled struct{}

var errStalled = errors.New("stalled")

func (stalled) Read([]byte) (int, error) { return 0, errStalled }

func TestMessageSizeBound(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const claims = 64
	for range claims {
		_, err := readPayload(stalled{}, FamilyRaft.MaxFrame())
		require.ErrorIs(t, err, errStalled)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(claims*4*growStep), "a claimed length alone must not allocate it")
}

func FuzzFrame(f *testing.F) {
	for _, fam := range families() {
		b, err := appendFrame(nil, fam, []byte("payload"))
		require.NoError(f, err)
		corpus.Add(f, fam.String(), b)
		corpus.Add(f, fam.String()+" without its payload", b[:headerSize])
	}
	corpus.Add(f, "the largest length", []byte{1, 1, 0xff, 0xff, 0xff, 0xff})
	corpus.Add(f, "next version", []byte{1, 2, 0, 0, 0, 0})
	corpus.Add(f, "unknown family", []byte{9, 1, 0, 0, 0, 0})
	corpus.Add(f, "half a header", []byte{1, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, fam := range families() {
			r := bytes.NewReader(b)
			payload, err := readFrame(r, fam, fam.MaxFrame())
			if err != nil {
				var e *Error
				if !errors.As(err, &e) && err != io.EOF { //nolint:errorlint // the bare end
					t.Fatalf("untyped error %v", err)
				}
				continue
			}
			if len(payload) > fam.MaxFrame() {
				t.Fatalf("%d bytes on family %s", len(payload), fam)
			}
			again, err := appendFrame(nil, fam, payload)
			if err != nil || !bytes.Equal(again, b[:len(b)-r.Len()]) {
				t.Fatalf("a frame does not encode to what was read: %v", err)
			}
		}
	})
}
