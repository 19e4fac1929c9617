// The rules of a source file as a test: its first comment states its job, and it is short enough to have one.

package testkit

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mostLines is the bound of a file; the aim is below 400.
const mostLines = 500

func TestEveryFileStatesItsJob(t *testing.T) {
	root := moduleRoot(t)
	files := 0
	walkModule(t, root, func(path string) {
		if !strings.HasSuffix(path, ".go") {
			return
		}
		b, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		files++
		if bytes.HasPrefix(b, []byte("//go:build ")) {
			_, b, _ = bytes.Cut(b, []byte("\n\n"))
		}
		require.True(t, bytes.HasPrefix(b, []byte("// ")), "%s does not begin with a comment that states its job", path)
		require.LessOrEqual(t, bytes.Count(b, []byte("\n")), mostLines, "%s does more than one job", path)
	})
	require.Greater(t, files, 500, "too few files were found to prove anything")
}
