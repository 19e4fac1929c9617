// Package corpus gives fuzz targets named seeds that are committed as well: testdata/fuzz/<target>/<name>.
//
// The seed itself is what this build's encoders write, its file what an earlier
// build wrote: a decoder meets both. UPDATE_GOLDEN=1 writes the files that are
// missing and never replaces one.
package corpus

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Add gives the target a seed under a name that is unique among its seeds. The
// arguments are those of the target: []byte, string, bool, byte, int or int64.
func Add(f *testing.F, name string, args ...any) {
	f.Helper()
	f.Add(args...)
	if os.Getenv("UPDATE_GOLDEN") == "" {
		return
	}
	path := filepath.Join("testdata", "fuzz", f.Name(), strings.ReplaceAll(name, " ", "-"))
	if _, err := os.Lstat(path); err == nil {
		return
	}
	text, err := file(args)
	require.NoError(f, err, name)
	require.NoError(f, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(f, os.WriteFile(path, text, 0o644))
}

// file is a corpus file as go test reads it.
func file(args []any) ([]byte, error) {
	b := []byte("go test fuzz v1\n")
	for _, a := range args {
		switch a := a.(type) {
		case []byte:
			b = fmt.Appendf(b, "[]byte(%q)\n", a)
		case string:
			b = fmt.Appendf(b, "string(%q)\n", a)
		case byte:
			b = fmt.Appendf(b, "byte(%q)\n", a)
		case bool, int, int64:
			b = fmt.Appendf(b, "%T(%v)\n", a, a)
		default:
			return nil, fmt.Errorf("an argument of type %T", a)
		}
	}
	return b, nil
}
