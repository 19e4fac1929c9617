// The notes on where a fleet runs: one region, what serves more of them, and what a balancer needs.

package testkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTopologyDocPresent looks for each statement that the notes owe their reader (§120, §121, §189–193).
func TestTopologyDocPresent(t *testing.T) {
	for file, statements := range map[string][]string{
		"README.md": {
			"One fleet, one region", "no wider Raft", "PostgreSQL (Neon, or a synchronous standby)", "agents there", "a standby cluster on the promoted database",
			"on which a measurement asks for it", "no balancer is needed", "no sticky sessions", "stable routing: layer 4 by flow, or anycast", "nothing must understand QUIC",
		},
		"roles/runner/DESIGN.md": {"No balancer is needed", "forward UDP by flow", "anycast with stable routes"},
	} {
		b, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(file)))
		require.NoError(t, err)
		text := strings.Join(strings.Fields(string(b)), " ")
		for _, s := range statements {
			require.Contains(t, text, s, file)
		}
	}
}
