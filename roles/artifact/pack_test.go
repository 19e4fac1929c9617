// Packing: the same tree gives the same bytes, and comes back as it was.

package artifact

import (
	"bytes"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// tree makes files from "path": "content"; a path that ends with a slash is a
// directory, a content that starts with "->" a link, one with "#!" executable.
func tree(t require.TestingT, root string, made map[string]string) {
	for name, text := range made {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		target, link := strings.CutPrefix(text, "->")
		switch {
		case strings.HasSuffix(name, "/"):
			require.NoError(t, os.MkdirAll(path, 0o755))
		case link:
			require.NoError(t, os.Symlink(target, path))
		case strings.HasPrefix(text, "#!"):
			require.NoError(t, os.WriteFile(path, []byte(text), 0o700))
		default:
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
	}
}

// grown is the inverse of tree.
func grown(t require.TestingT, root string) map[string]string {
	got := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		name, err := filepath.Rel(root, path)
		require.NoError(t, err)
		switch {
		case e.IsDir():
			got[name+"/"] = ""
		case e.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			require.NoError(t, err)
			got[name] = "->" + target
		default:
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			info, err := e.Info()
			require.NoError(t, err)
			require.Equal(t, bytes.HasPrefix(b, []byte("#!")), info.Mode()&0o111 != 0, "%s is executable or not", name)
			got[name] = string(b)
		}
		return nil
	}))
	delete(got, "./")
	return got
}

func packed(t require.TestingT, root string, paths ...string) ([]byte, Packed) {
	var b bytes.Buffer
	p, err := Pack(ctxOf(t), root, paths, Limits{}, &b)
	require.NoError(t, err)
	return b.Bytes(), p
}

func TestPackLeavesOutWhatCannotTravel(t *testing.T) {
	root := t.TempDir()
	tree(t, root, map[string]string{
		".git/config": "secret", "sub/.git": "gitdir: elsewhere", "sub/.github/x": "kept", ".gitignore": "kept",
		"run": "#!", "in": "->sub/.github", "sub/up": "->../run", "sub/out": "->../../etc", "abs": "->/etc/passwd", "late": "->sub/../run", "dangling": "->nowhere",
	})
	require.NoError(t, syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600))
	socket, err := net.Listen("unix", filepath.Join(root, "s"))
	require.NoError(t, err)
	defer socket.Close()
	require.NoError(t, os.Chmod(filepath.Join(root, "run"), 0o755|fs.ModeSetuid))

	b, p := packed(t, root)
	slices.Sort(p.Skipped)
	require.Equal(t, []string{"abs", "late", "pipe", "s", "sub/out"}, p.Skipped)
	dest := filepath.Join(t.TempDir(), "dest")
	got, err := Unpack(t.Context(), bytes.NewReader(b), dest, Limits{})
	require.NoError(t, err)
	require.Equal(t, p.Contents, got)
	require.Equal(t, map[string]string{
		"sub/": "", "sub/.github/": "", "sub/.github/x": "kept", ".gitignore": "kept", "run": "#!", "in": "->sub/.github", "sub/up": "->../run", "dangling": "->nowhere",
	}, grown(t, dest))
}

func TestPackOfPaths(t *testing.T) {
	root := t.TempDir()
	tree(t, root, map[string]string{"out/bin/tool": "#!", "out/lib": "lib", "outer": "no", "report.txt": "yes", "link": "->out", "a/b/c/d": "deep"})
	b, _ := packed(t, root, "report.txt", "./out/bin/", "out/bin/tool", "a/b/c")
	again, _ := packed(t, root, "a/b/c/", "out/bin", "report.txt")
	require.Equal(t, b, again, "the order of the paths makes no difference")
	dest := filepath.Join(t.TempDir(), "dest")
	_, err := Unpack(t.Context(), bytes.NewReader(b), dest, Limits{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"out/": "", "out/bin/": "", "out/bin/tool": "#!", "report.txt": "yes", "a/": "", "a/b/": "", "a/b/c/": "", "a/b/c/d": "deep",
	}, grown(t, dest))

	for path, want := range map[string]error{
		"nothing": fs.ErrNotExist, "out/nothing": fs.ErrNotExist, "../x": ErrEscape, "/etc": ErrEscape, "link/bin": ErrEscape, "report.txt/x": ErrEscape,
	} {
		_, err := Pack(t.Context(), root, []string{path}, Limits{}, &bytes.Buffer{})
		require.ErrorIs(t, err, want, path)
	}
	_, p := packed(t, root, "link")
	require.Equal(t, 1, p.Entries, "a link is packed as a link")
}

func TestPackKeepsToItsLimits(t *testing.T) {
	root := t.TempDir()
	tree(t, root, map[string]string{"a": "12345", "b": "12345", "c/d/e": ""})
	for _, l := range []Limits{{Entries: 4}, {Bytes: 9}, {File: 4}, {Depth: 2}, {PathLen: 4}} {
		_, err := Pack(t.Context(), root, nil, l, &bytes.Buffer{})
		require.ErrorIs(t, err, ErrLimit, "%+v", l)
	}
	_, err := Pack(t.Context(), root, nil, Limits{Entries: 5, Bytes: 10, File: 5, Depth: 3, PathLen: 6}, &bytes.Buffer{})
	require.NoError(t, err)
	_, err = Pack(ctxDone(), root, nil, Limits{}, &bytes.Buffer{})
	require.Error(t, err)
}

func TestTreesComeBackAsTheyWere(t *testing.T) {
	name := rapid.Custom(func(t *rapid.T) string {
		part := rapid.OneOf(rapid.SampledFrom([]string{"a", "b", "a.b", "ä", "x y", "-", strings.Repeat("n", 120)}), rapid.StringMatching(`[a-z]{1,3}`))
		return strings.Join(rapid.SliceOfN(part, 1, 4).Draw(t, "parts"), "/")
	})
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "#!", "->a", "->../a", "->../b/c"}))
	parent := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		one, err := os.MkdirTemp(parent, "tree")
		require.NoError(rt, err)
		defer os.RemoveAll(one)
		source := filepath.Join(one, "source")
		require.NoError(rt, os.Mkdir(source, 0o755))
		made := map[string]string{}
		for _, n := range rapid.SliceOfN(name, 0, 8).Draw(rt, "names") {
			free := true
			for other := range made {
				free = free && other != n && !strings.HasPrefix(other, n+"/") && !strings.HasPrefix(n, other+"/")
			}
			if free {
				made[n] = text.Draw(rt, "text")
			}
		}
		for n, content := range made {
			if target, link := strings.CutPrefix(content, "->"); strings.ContainsRune(content, 0) || link && !inside(n, target) {
				made[n] = "plain"
			}
		}
		tree(rt, source, made)
		first, p := packed(rt, source)
		require.NoError(rt, filepath.WalkDir(source, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.Type() == fs.ModeSymlink {
				return err
			}
			return os.Chtimes(path, time.Time{}, time.Unix(12345, 0))
		}))
		again, _ := packed(rt, source)
		require.Equal(rt, first, again, "times make no difference")
		dest := filepath.Join(one, "dest")
		contents, err := Unpack(ctxOf(rt), bytes.NewReader(first), dest, Limits{})
		require.NoError(rt, err)
		require.Equal(rt, p.Contents, contents)
		require.Equal(rt, grown(rt, source), grown(rt, dest))
		copied, _ := packed(rt, dest)
		require.Equal(rt, first, copied, "a copy packs to the same bytes")
	})
}
