// Trees from outside: judged at the door, whole on the way out.

package artifact

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func zipped(t *testing.T, made map[string]string) []byte {
	root := t.TempDir()
	tree(t, root, made)
	var b bytes.Buffer
	_, err := PackZstd(t.Context(), root, nil, Limits{}, &b)
	require.NoError(t, err)
	var again bytes.Buffer
	_, err = PackZstd(t.Context(), root, nil, Limits{}, &again)
	require.NoError(t, err)
	require.Equal(t, b.Bytes(), again.Bytes())
	return b.Bytes()
}

func TestSourcesGoInAndOut(t *testing.T) {
	eachStore(t, func(t *testing.T, r *rig) {
		s := Sources{Store: r}
		b := zipped(t, map[string]string{"main.go": "package main", "build.sh": "#!", "sub/link": "->../main.go"})
		got, err := s.Put(t.Context(), bytes.NewReader(b), Digest{})
		require.NoError(t, err)
		require.Equal(t, Source{Digest: DigestOf(b), Size: int64(len(b)), Contents: Contents{Entries: 4, Bytes: 14}}, got)
		dest := filepath.Join(t.TempDir(), "work")
		contents, err := s.Unpack(t.Context(), got.Digest, dest)
		require.NoError(t, err)
		require.Equal(t, got.Contents, contents)
		require.Equal(t, map[string]string{"main.go": "package main", "build.sh": "#!", "sub/": "", "sub/link": "->../main.go"}, grown(t, dest))

		r.rot(got.Digest)
		dest = filepath.Join(t.TempDir(), "work")
		_, err = s.Unpack(t.Context(), got.Digest, dest)
		require.ErrorIs(t, err, ErrCorrupt)
		require.NoDirExists(t, dest)
		_, err = s.Unpack(t.Context(), DigestOf([]byte("never")), dest)
		require.ErrorIs(t, err, ErrMissing)
	})
}

func TestRefusedSourcesAreNotStored(t *testing.T) {
	r := newFileRig(t)
	s := Sources{Store: r, Limits: tight, Size: 2000}
	for name, c := range hostile(t) {
		if c.err == nil || len(compressed(t, c.archive)) > 2000 {
			continue
		}
		_, err := s.Put(t.Context(), bytes.NewReader(compressed(t, c.archive)), Digest{})
		require.ErrorIs(t, err, c.err, name)
	}
	good := compressed(t, archive(t, reg("a", "x")))
	_, err := s.Put(t.Context(), bytes.NewReader(nil), Digest{})
	require.ErrorIs(t, err, ErrArchive, "an empty upload is no tree")
	_, err = s.Put(t.Context(), bytes.NewReader(append(bytes.Clone(good), "garbage"...)), Digest{})
	require.ErrorIs(t, err, ErrArchive)
	_, err = s.Put(t.Context(), bytes.NewReader(good[:len(good)-3]), Digest{})
	require.ErrorIs(t, err, ErrArchive)
	_, err = s.Put(t.Context(), bytes.NewReader(good), DigestOf(nil))
	require.ErrorIs(t, err, ErrMismatch)
	_, err = s.Put(t.Context(), bytes.NewReader(compressed(t, archive(t, reg("a", string(content(1, 4000)))))), Digest{})
	require.ErrorIs(t, err, ErrTooLarge)
	failure := errors.New("the client went away")
	_, err = s.Put(t.Context(), broken(good[:20], failure), Digest{})
	require.ErrorIs(t, err, failure)
	_, err = s.Put(ctxDone(), bytes.NewReader(good), Digest{})
	require.Error(t, err)
	require.Empty(t, all(t, r))

	_, err = s.Put(t.Context(), bytes.NewReader(good), DigestOf(good))
	require.NoError(t, err)
	require.Len(t, all(t, r), 1)
}
