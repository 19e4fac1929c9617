// What is said of a file with credentials that cannot be read.

package cli

import (
	"fmt"
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whoever may not read a file needs no other one: it would be as unreadable.
func TestUnreadableFileNeedsNoOtherOne(t *testing.T) {
	_, missing := os.Open(t.TempDir() + "/ca.crt")
	require.Error(t, missing)
	require.Equal(t, "make one", readable(missing, "make one"))
	forbidden := fmt.Errorf("load: %w", &fs.PathError{Op: "open", Path: "ca.crt", Err: fs.ErrPermission})
	require.Contains(t, readable(forbidden, "make one"), "let this user read the file")
}
