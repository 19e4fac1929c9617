// Archives that mean harm, and the property that none of them reaches beyond its directory.

package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// item is one entry of a hand-made archive.
type item struct {
	tar.Header
	body string
}

func dir(name string) item {
	return item{Header: tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}}
}

func reg(name, body string) item {
	return item{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(body))}, body}
}

func sym(name, target string) item {
	return item{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}}
}

func hard(name, target string) item {
	return item{Header: tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644}}
}

func special(kind byte, name string) item {
	return item{Header: tar.Header{Typeflag: kind, Name: name, Mode: 0o644}}
}

func moded(i item, mode int64) item {
	i.Mode = mode
	return i
}

// archive writes what it is told to, also what a tar.Writer refuses.
func archive(t require.TestingT, items ...item) []byte {
	var b bytes.Buffer
	for _, i := range items {
		if len(i.Name) < 100 {
			b.Write(rawHeader(i.Header))
		} else {
			require.NoError(t, tar.NewWriter(&b).WriteHeader(&i.Header))
		}
		b.WriteString(i.body)
		b.Write(make([]byte, -len(i.body)&511))
	}
	b.Write(make([]byte, 1024))
	return b.Bytes()
}

func rawHeader(h tar.Header) []byte {
	b := make([]byte, 512)
	field := func(at int, text string) { copy(b[at:], text) }
	field(0, h.Name)
	field(100, fmt.Sprintf("%07o", h.Mode))
	field(108, "0000000")
	field(116, "0000000")
	field(124, fmt.Sprintf("%011o", h.Size))
	field(136, "00000000000")
	field(148, "        ")
	b[156] = h.Typeflag
	field(157, h.Linkname)
	field(257, "ustar\x0000")
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	field(148, fmt.Sprintf("%06o\x00 ", sum))
	return b
}

func compressed(t testing.TB, b []byte) []byte {
	z, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	return z.EncodeAll(b, nil)
}

// sparse is a file of a terabyte of holes, in a few hundred bytes.
func sparse(t testing.TB) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	h := reg("PaxHeaders/holes", "").Header
	h.PAXRecords = map[string]string{"VEN.sparse.major": "1", "VEN.sparse.minor": "0", "VEN.sparse.name": "holes", "VEN.sparse.realsize": "1099511627776"}
	body := make([]byte, 512)
	copy(body, "0\n")
	h.Size = int64(len(body))
	require.NoError(t, w.WriteHeader(&h))
	_, err := w.Write(body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	// The writer refuses the real names; each record tells its length, so these are as long.
	return bytes.ReplaceAll(b.Bytes(), []byte("VEN.sparse"), []byte("GNU.sparse"))
}

var tight = Limits{Entries: 20, Bytes: 10_000, File: 5_000, Depth: 8, PathLen: 200}

// hostile are archives and why each is refused.
func hostile(t testing.TB) map[string]struct {
	archive []byte
	err     error
	names   string
} {
	long := strings.Repeat("n", 190)
	many := func(n int, f func(i int) item) []byte {
		var items []item
		for i := range n {
			items = append(items, f(i))
		}
		return archive(t, items...)
	}
	ok := archive(t, reg("good", "good"), dir("d/"))
	return map[string]struct {
		archive []byte
		err     error
		names   string
	}{
		"absolute path":               {archive(t, reg("good", "x"), reg("/etc/passwd", "x")), ErrEscape, "/etc/passwd"},
		"parent path":                 {archive(t, reg("good", "x"), reg("../evil", "x")), ErrEscape, "../evil"},
		"parent path inside":          {archive(t, reg("a/../../evil", "x")), ErrEscape, "a/../../evil"},
		"parent path that stays":      {archive(t, reg("a/../b", "x")), ErrEscape, "a/../b"},
		"absolute directory":          {archive(t, dir("/evil/")), ErrEscape, "/evil"},
		"through a link":              {archive(t, sym("link", "dir"), reg("link/evil", "x")), ErrEscape, "link/evil"},
		"through a link to a parent":  {archive(t, dir("d/"), sym("d/link", "../d"), reg("d/link/evil", "x")), ErrEscape, "d/link/evil"},
		"link to an absolute path":    {archive(t, reg("good", "x"), sym("link", "/etc")), ErrLink, "link"},
		"link to the parent":          {archive(t, sym("link", "..")), ErrLink, "link"},
		"link above from below":       {archive(t, sym("a/b/link", "../../../evil")), ErrLink, "a/b/link"},
		"link that climbs late":       {archive(t, sym("a/b", ".."), sym("a/l", "b/../../evil")), ErrLink, "a/l"},
		"link that climbs by another": {archive(t, sym("d/b", ".."), sym("d/l", "b/../evil")), ErrLink, "d/l"},
		"link to nothing":             {archive(t, sym("link", "")), ErrLink, "link"},
		"hard link outside":           {archive(t, hard("link", "/etc/passwd")), ErrLink, "link"},
		"hard link above":             {archive(t, hard("link", "../secret")), ErrLink, "link"},
		"hard link to a link":         {archive(t, sym("s", "t"), hard("link", "s")), ErrLink, "link"},
		"hard link to nothing yet":    {archive(t, hard("link", "later"), reg("later", "x")), ErrLink, "link"},
		"hard link to itself":         {archive(t, reg("a", "x"), hard("a", "a")), ErrLink, "a"},
		"character device":            {archive(t, special(tar.TypeChar, "null")), ErrSpecial, "null"},
		"block device":                {archive(t, reg("good", "x"), special(tar.TypeBlock, "disk")), ErrSpecial, "disk"},
		"pipe":                        {archive(t, special(tar.TypeFifo, "pipe")), ErrSpecial, "pipe"},
		"unknown kind":                {archive(t, special('Z', "odd")), ErrSpecial, "odd"},
		"setuid":                      {archive(t, reg("good", "x"), moded(reg("su", "x"), 0o4755)), ErrPrivileged, "su"},
		"setgid directory":            {archive(t, moded(dir("sg/"), 0o2755)), ErrPrivileged, "sg"},
		"sticky":                      {archive(t, moded(reg("st", "x"), 0o1644)), ErrPrivileged, "st"},
		"file becomes directory":      {archive(t, reg("a", "x"), dir("a/")), ErrTypeSwitch, "a"},
		"directory becomes link":      {archive(t, dir("a/"), sym("a", "b")), ErrTypeSwitch, "a"},
		"implied directory is a link": {archive(t, reg("a/b", "x"), sym("a", "c")), ErrTypeSwitch, "a"},
		"link becomes file":           {archive(t, sym("a", "b"), reg("a", "x")), ErrTypeSwitch, "a"},
		"file below a file":           {archive(t, reg("a", "x"), reg("a/b", "x")), ErrTypeSwitch, "a/b"},
		"root is a file":              {archive(t, reg("./", "")), ErrTypeSwitch, "./"},
		"root is a link":              {archive(t, sym(".", "x")), ErrTypeSwitch, "."},
		"too many entries":            {many(21, func(i int) item { return reg("f"+strings.Repeat("x", i), "") }), ErrLimit, "fxxx"},
		"too many implied ones":       {many(5, func(i int) item { return reg(strings.Repeat("d/", 3)+strings.Repeat("e", i+1)+"/f/g", "") }), nil, ""},
		"too many implied parents":    {many(7, func(i int) item { return reg(strings.Repeat("d", i+1)+"/e/f/g", "") }), ErrLimit, "d/e/f/g"},
		"the root again and again":    {many(21, func(int) item { return dir("./") }), ErrLimit, "./"},
		"one file too large":          {archive(t, reg("big", strings.Repeat("x", 5001))), ErrLimit, "big"},
		"all files too large":         {many(3, func(i int) item { return reg(strings.Repeat("f", i+1), strings.Repeat("x", 4000)) }), ErrLimit, "fff"},
		"the same file too often":     {many(3, func(int) item { return reg("f", strings.Repeat("x", 4000)) }), ErrLimit, "f"},
		"too deep":                    {archive(t, reg("1/2/3/4/5/6/7/8/9", "")), ErrLimit, "1/2/3"},
		"path too long":               {archive(t, reg(long+"/"+long, "")), ErrLimit, "nnnn"},
		"sparse file":                 {sparse(t), ErrSpecial, "holes"},
		"no archive":                  {bytes.Repeat([]byte("not a tar "), 200), ErrArchive, ""},
		"cut off":                     {archive(t, reg("a", strings.Repeat("x", 3000)))[:1800], ErrArchive, ""},
		"endless after its end":       {append(bytes.Clone(ok), make([]byte, 2<<20)...), ErrLimit, ""},
		"endless headers":             {many(5000, func(int) item { return special(tar.TypeXHeader, "more") }), ErrLimit, ""},
	}
}

func TestHostileArchives(t *testing.T) {
	for name, c := range hostile(t) {
		t.Run(name, func(t *testing.T) {
			inspected, inspectErr := InspectZstd(t.Context(), bytes.NewReader(compressed(t, c.archive)), tight)
			for _, exists := range []bool{false, true} {
				parent := t.TempDir()
				dest := filepath.Join(parent, "dest")
				if exists {
					require.NoError(t, os.Mkdir(dest, 0o755))
				}
				got, err := UnpackZstd(t.Context(), bytes.NewReader(compressed(t, c.archive)), dest, tight)
				if c.err == nil {
					require.NoError(t, err)
					require.NoError(t, inspectErr)
					require.Equal(t, inspected, got)
					continue
				}
				require.ErrorIs(t, err, c.err)
				require.EqualError(t, inspectErr, err.Error(), "what is inspected is judged as what is unpacked")
				require.ErrorContains(t, err, c.names)
				onlyEmpty(t, parent, dest, exists)
			}
		})
	}
}

// onlyEmpty checks that nothing is left of a refused archive, inside or outside.
func onlyEmpty(t require.TestingT, parent, dest string, exists bool) {
	held, err := os.ReadDir(parent)
	require.NoError(t, err)
	if !exists {
		require.Empty(t, held)
		return
	}
	require.Len(t, held, 1)
	held, err = os.ReadDir(dest)
	require.NoError(t, err)
	require.Empty(t, held)
}

// A million entries are refused at the limit and not after the millionth.
func TestMillionEntries(t *testing.T) {
	pr, pw := io.Pipe()
	written := make(chan int, 1)
	go func() {
		w := tar.NewWriter(pw)
		n := 0
		for ; n < 1_000_000; n++ {
			h := reg("d/"+string(rune('a'+n%26))+strings.Repeat("z", n%7)+"/"+time.Duration(n).String(), "").Header
			if w.WriteHeader(&h) != nil {
				break
			}
		}
		written <- n
		pw.CloseWithError(w.Close())
	}()
	_, err := scan(t.Context(), pr, Limits{Entries: 10_000}, func(entry, io.Reader) error { return nil })
	require.ErrorIs(t, err, ErrLimit)
	require.NoError(t, pr.Close())
	require.LessOrEqual(t, <-written, 10_001)
}

func TestCompressionBombs(t *testing.T) {
	dest := filepath.Join(t.TempDir(), "dest")
	var bomb bytes.Buffer
	z, err := zstd.NewWriter(&bomb, zstd.WithEncoderConcurrency(1))
	require.NoError(t, err)
	w := tar.NewWriter(z)
	h := reg("zeros", "").Header
	h.Size = 1 << 40
	require.NoError(t, w.WriteHeader(&h))
	zeros := make([]byte, 1<<20)
	for range 4 {
		_, err := w.Write(zeros)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	_, err = UnpackZstd(t.Context(), &bomb, dest, Limits{})
	require.ErrorIs(t, err, ErrLimit, "by what its header says, before a byte is written")
	require.NoDirExists(t, dest)

	var wide bytes.Buffer
	z, err = zstd.NewWriter(&wide, zstd.WithWindowSize(64<<20))
	require.NoError(t, err)
	for range 4 { // flushed, or the frame would be declared as small as it is
		_, err := z.Write(zeros)
		require.NoError(t, errors.Join(err, z.Flush()))
	}
	require.NoError(t, z.Close())
	_, err = UnpackZstd(t.Context(), &wide, dest, Limits{})
	require.ErrorIs(t, err, ErrArchive, "a frame that needs more memory than it is given")
	require.NoDirExists(t, dest)
}

func TestLargeTreesPassTheDecodersLimit(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "zeros"), make([]byte, maxDecode+1<<20), 0o600))
	var b bytes.Buffer
	_, err := PackZstd(t.Context(), root, nil, Limits{}, &b)
	require.NoError(t, err)
	got, err := InspectZstd(t.Context(), &b, Limits{})
	require.NoError(t, err)
	require.EqualValues(t, maxDecode+1<<20, got.Bytes)
}

func TestUnpackOverwritesNothing(t *testing.T) {
	dest := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dest, "mine"), []byte("mine"), 0o600))
	_, err := Unpack(t.Context(), bytes.NewReader(archive(t, reg("a", "x"))), dest, tight)
	require.ErrorIs(t, err, ErrDestination)
	require.FileExists(t, filepath.Join(dest, "mine"))
	require.NoFileExists(t, filepath.Join(dest, "a"))
}

func TestUnpackWritesWhatWasPacked(t *testing.T) {
	dest := filepath.Join(t.TempDir(), "dest")
	got, err := Unpack(t.Context(), bytes.NewReader(archive(t,
		dir("./"), moded(reg("./bin/tool", "#!"), 0o700), sym("bin/alias", "./tool"), sym("up", "bin/alias"),
		reg("twice", "first"), hard("same", "twice"), reg("twice", "second"), sym("bin/up", "../twice"), sym("dangling", "nowhere"),
	)), dest, tight)
	require.NoError(t, err)
	require.Equal(t, Contents{Entries: 10, Bytes: 13}, got)
	for name, want := range map[string]string{"bin/tool": "#!", "bin/alias": "#!", "up": "#!", "same": "first", "twice": "second", "bin/up": "second"} {
		b, err := os.ReadFile(filepath.Join(dest, name))
		require.NoError(t, err)
		require.Equal(t, want, string(b), name)
	}
	info, err := os.Stat(filepath.Join(dest, "bin/tool"))
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&0o100)
	info, err = os.Stat(filepath.Join(dest, "twice"))
	require.NoError(t, err)
	require.Zero(t, info.Mode()&0o111)
}

// The last bytes of a blob decide whether it is whole: they are read although the archive has ended before.
func TestDamageAtTheEndRefusesTheWhole(t *testing.T) {
	failure := errors.New("the blob is damaged")
	dest := filepath.Join(t.TempDir(), "dest")
	_, err := Unpack(t.Context(), broken(archive(t, reg("a", "x")), failure), dest, tight)
	require.ErrorIs(t, err, ErrArchive)
	require.ErrorContains(t, err, failure.Error())
	require.NoDirExists(t, dest)
	_, err = Unpack(ctxDone(), bytes.NewReader(archive(t, reg("a", "x"))), dest, tight)
	require.ErrorIs(t, err, context.Canceled)
	require.NoDirExists(t, dest)
}
