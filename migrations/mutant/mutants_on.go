//go:build mutants

// A mutants build: one fault, chosen by the environment at the start of the process.

package mutant

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
)

// Acts begins the line on standard error by which a process says that a planted
// fault was reached: without it a failed test has not caught the fault.
const Acts = "mutant acts: "

var planted = chosen()

// chosen panics on a name that no fault has: it would look like a mutant that survives.
func chosen() Name {
	n := Name(os.Getenv(Env))
	if n != "" && !slices.Contains(Names(), n) {
		panic(fmt.Sprintf("%s names no mutant: %q", Env, n))
	}
	return n
}

var say = sync.OnceFunc(func() { fmt.Fprintf(os.Stderr, "%s%s\n", Acts, planted) })

// Planted reports whether this process has the fault.
func Planted(n Name) bool {
	if n != planted {
		return false
	}
	say()
	return true
}

// SQL returns the text with the fault that is planted into it.
func SQL(text string) string {
	edits := edits[planted]
	if len(edits) == 0 || !strings.Contains(text, edits[0].old) {
		return text
	}
	for _, e := range edits {
		if !strings.Contains(text, e.old) {
			panic(fmt.Sprintf("mutant %s: the text has changed, it has no %q", planted, e.old))
		}
		text = strings.Replace(text, e.old, e.new, 1)
	}
	say()
	return text
}

// Files returns the files with the fault that is planted into one of them.
func Files(files fs.FS) fs.FS {
	if len(edits[planted]) == 0 {
		return files
	}
	return edited{files}
}

// edited is a file system whose files are read with the planted fault.
type edited struct{ fs.FS }

// ReadDir implements fs.ReadDirFS.
func (e edited) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(e.FS, name) }

// ReadFile implements fs.ReadFileFS.
func (e edited) ReadFile(name string) ([]byte, error) {
	b, err := fs.ReadFile(e.FS, name)
	return []byte(SQL(string(b))), err
}

// Open implements fs.FS.
func (e edited) Open(name string) (fs.File, error) {
	f, err := e.FS.Open(name)
	if err != nil {
		return nil, err
	}
	if i, err := f.Stat(); err != nil || i.IsDir() {
		return f, err
	}
	b, err := e.ReadFile(name)
	return &file{File: f, Reader: bytes.NewReader(b)}, err
}

// file is a file whose content was edited.
type file struct {
	fs.File
	*bytes.Reader
}

// Read implements fs.File.
func (f *file) Read(p []byte) (int, error) { return f.Reader.Read(p) }
