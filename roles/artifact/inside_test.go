// The property that no archive reaches beyond the directory it is unpacked into, with a corpus of those that tried.

package artifact

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// harmless unpacks something under a directory with neighbours and checks that
// only dest changed, that every link in it stays in it, and that a refusal leaves nothing.
func harmless(t require.TestingT, parent string, raw []byte) error {
	neighbour := filepath.Join(parent, "neighbour")
	require.NoError(t, os.MkdirAll(neighbour, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(neighbour, "file"), []byte("mine"), 0o600))
	dest := filepath.Join(parent, "dest")
	_, err := Unpack(context.Background(), bytes.NewReader(raw), dest, tight)
	held, readErr := os.ReadDir(parent)
	require.NoError(t, readErr)
	for _, e := range held {
		require.Contains(t, []string{"neighbour", "dest"}, e.Name())
	}
	b, readErr := os.ReadFile(filepath.Join(neighbour, "file"))
	require.NoError(t, readErr)
	require.Equal(t, "mine", string(b))
	if err != nil {
		require.NoDirExists(t, dest)
		return err
	}
	real, linkErr := filepath.EvalSymlinks(dest)
	require.NoError(t, linkErr)
	require.NoError(t, filepath.WalkDir(dest, func(path string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		require.Contains(t, []fs.FileMode{0, fs.ModeDir, fs.ModeSymlink}, e.Type())
		info, err := e.Info()
		require.NoError(t, err)
		require.Zero(t, info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky))
		if target, err := filepath.EvalSymlinks(path); err == nil {
			require.True(t, target == real || strings.HasPrefix(target, real+"/"), "%s leads to %s", path, target)
		}
		return nil
	}))
	return os.RemoveAll(dest)
}

func TestRandomArchivesStayInside(t *testing.T) {
	parent := t.TempDir()
	accepted := 0
	part := rapid.SampledFrom([]string{"a", "b", "c", "..", ".", "", "dest", "neighbour", "file"})
	name := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(part, 1, 4).Draw(t, "parts"), "/") })
	tame := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 3).Draw(t, "parts"), "/")
	})
	rapid.Check(t, func(rt *rapid.T) {
		items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) item {
			n := rapid.OneOf(tame, tame, tame, name).Draw(t, "name")
			target := rapid.OneOf(tame, name).Draw(t, "target")
			switch rapid.SampledFrom([]string{"file", "file", "dir", "sym", "sym", "hard"}).Draw(t, "kind") {
			case "dir":
				return dir(n + "/")
			case "sym":
				return sym(n, target)
			case "hard":
				return hard(n, target)
			}
			return reg(n, "body")
		}), 1, 8).Draw(rt, "items")
		if harmless(rt, parent, archive(t, items...)) == nil {
			accepted++
		}
	})
	require.Greater(t, accepted, 5, "some archives are accepted, or this shows nothing")
}

func FuzzUnpack(f *testing.F) {
	parent := f.TempDir()
	f.Fuzz(func(t *testing.T, raw []byte) {
		_ = harmless(t, parent, raw) // its own checks are the test
	})
}

func FuzzUnpackZstd(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw []byte) {
		dest := filepath.Join(t.TempDir(), "dest")
		if _, err := UnpackZstd(t.Context(), bytes.NewReader(raw), dest, tight); err != nil {
			require.NoDirExists(t, dest)
		}
	})
}

// Every hand-made archive is in the corpora that fuzzing starts from. UPDATE_GOLDEN=1 writes them.
func TestCorporaHoldEveryHostileArchive(t *testing.T) {
	kept := 0
	for name, c := range hostile(t) {
		if len(c.archive) > 16<<10 {
			continue // large by repetition only
		}
		kept++
		name = strings.ReplaceAll(name, " ", "-")
		for target, b := range map[string][]byte{"FuzzUnpack": c.archive, "FuzzUnpackZstd": compressed(t, c.archive)} {
			path := filepath.Join("testdata", "fuzz", target, name)
			want := fmt.Sprintf("go test fuzz v1\n[]byte(%q)\n", b)
			if os.Getenv("UPDATE_GOLDEN") != "" {
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
			}
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, want, string(got), path)
		}
	}
	require.Greater(t, kept, 30)
}
