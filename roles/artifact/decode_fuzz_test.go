// Fuzzing of the small texts: digests, a store's URL; and of a stored chunk of a log.

package artifact

import (
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/corpus"
)

func FuzzParseDigest(f *testing.F) {
	good := DigestOf([]byte("x")).String()
	for name, s := range map[string]string{
		"digest": good, "capitals": strings.ToUpper(good), "no prefix": good[len(digestPrefix):], "short": good[:len(good)-1], "long": good + "0",
		"another algorithm": "sha512:" + good[len(digestPrefix):], "no digit": good[:len(good)-1] + "g", "nothing": "", "a letter that lowers to ASCII": good[:len(good)-3] + "\u212a",
	} {
		corpus.Add(f, name, s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDigest(s)
		if err != nil {
			require.True(t, d.IsZero())
			return
		}
		require.Equal(t, s, d.String(), "one text for one digest")
		back, err := DigestFromBytes(d.Bytes())
		require.NoError(t, err)
		require.Equal(t, d, back)
	})
}

// No refusal of a store's URL repeats what may be a secret in it.
func FuzzOpenURL(f *testing.F) {
	for name, s := range map[string]string{
		"file": "file:///srv/cas", "relative": "file:srv/cas", "a host": "file://host/srv", "s3": "s3://bucket/prefix?endpoint=localhost:9000&region=eu&insecure=true",
		"credentials": "s3://AKIA:hunter2secret@bucket/prefix", "malformed": "s3://AKIA:hunter2%zzsecret@bucket", "unknown parameter": "s3://bucket?secret=hunter2secret", "nameless parameter": "s3:?hunter2",
		"endpoint": "s3://bucket?endpoint=hunter2_secret://", "scheme": "hunter2secret:x",
		"another scheme": "gopher://x", "no bucket": "s3:///prefix", "dots": "file:///srv/../../etc", "control": "file:///\x00", "nothing": "",
	} {
		corpus.Add(f, name, s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		store, err := open(s, fsm.ClusterID{15: 1}, Options{Spool: t.TempDir()})
		if err == nil {
			require.True(t, strings.HasPrefix(strings.ToLower(s), "file:") || strings.HasPrefix(strings.ToLower(s), "s3:"))
			require.NoError(t, store.Close())
			return
		}
		require.ErrorIs(t, err, ErrURL)
		require.NotContains(t, err.Error(), "hunter2")
	})
}

// A chunk of a log is at most MaxChunk bytes, whatever its frame says.
func FuzzLogChunk(f *testing.F) {
	l, err := NewLogs(nil, nil)
	require.NoError(f, err)
	enc, err := zstd.NewWriter(nil)
	require.NoError(f, err)
	frame := func(n int) []byte { return enc.EncodeAll([]byte(strings.Repeat("line\n", n)), nil) }
	for name, b := range map[string][]byte{
		"line": frame(1), "largest": frame(MaxChunk / 5), "too large": frame(MaxChunk/5 + 1), "bomb": enc.EncodeAll(make([]byte, 8<<20), nil), "two frames": append(frame(1), frame(2)...),
		"cut": frame(9)[:8], "nothing": {}, "no frame": []byte("line\n"),
	} {
		corpus.Add(f, name, b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		raw, err := l.dec.DecodeAll(b, nil)
		if err == nil {
			require.LessOrEqual(t, len(raw), MaxChunk)
		}
	})
}
