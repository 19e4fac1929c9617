// What a job finds in its environment.

package runner

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A name that stood twice would mean one thing to a shell and another to a Go
// program; and no job may take the mark by which its processes are found.
func TestEnvironmentNamesStandOnce(t *testing.T) {
	env := Environment(Task{
		Lease: "the-lease", Dir: "/job", Home: "/job/home",
		Env: map[string]string{"HOME": "/root", "PATH": "/bin", "FORGEYARD_LEASE": "another", "OWN": "a=b"},
	})
	values := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		require.NotContains(t, values, name)
		values[name] = value
	}
	require.Equal(t, "/root", values["HOME"])
	require.Equal(t, "/bin", values["PATH"])
	require.Equal(t, "the-lease", values["FORGEYARD_LEASE"])
	require.Equal(t, "a=b", values["OWN"])
	require.Equal(t, "/job", values["TMPDIR"])
}
