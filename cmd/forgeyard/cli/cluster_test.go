// The table of members where it is narrow: which reasons are told above it, and which below.

package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/health"
)

// A member's reason that the headline has told is not told again; that of another whose name ends alike is its own.
func TestReasonsAreToldOnce(t *testing.T) {
	const reason = "no contact for 42 s"
	rows := []health.MemberRow{{Name: "node-a", Reason: reason}, {Name: "xnode-a", Reason: reason}}
	for name, c := range map[string]struct {
		told  string
		below []string
	}{
		"none":            {"1 of 3 voters is in contact; 2 are needed", []string{"node-a: " + reason, "xnode-a: " + reason}},
		"one":             {"node-a is unreachable: " + reason, []string{"xnode-a: " + reason}},
		"within a phrase": {"voter node-a is unreachable: " + reason, []string{"xnode-a: " + reason}},
		"a longer name":   {"xnode-a is unreachable: " + reason, []string{"node-a: " + reason}},
		"another reason":  {"node-a is lagging: 2000 entries", []string{"node-a: " + reason, "xnode-a: " + reason}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &painter{width: 40}
			p.members(rows, []string{c.told})
			require.NotContains(t, p.String(), "REASON", "the table has no room for it")
			var below []string
			for _, m := range rows {
				if line := m.Name + ": " + reason; slices.Contains(strings.Split(p.String(), "\n"), line) {
					below = append(below, line)
				}
			}
			require.Equal(t, c.below, below, p.String())
		})
	}
}

// What the headline promises must hold for who submits work, not for consensus alone.
func TestHeadlineWithoutPostgres(t *testing.T) {
	var s health.ClusterStatus
	s.Headline, s.Quorum.CanLose = health.Degraded, 1
	s.PostgreSQL.Writable, s.PostgreSQL.Missing = []string{"node-a"}, []string{"node-b"}
	require.Contains(t, headlineTail(s), "writes continue")
	s.Members = make([]health.MemberRow, 3)
	s.PostgreSQL.Writable, s.PostgreSQL.Missing = nil, []string{"node-a", "node-b"}
	require.Contains(t, headlineTail(s), "no daemon is known that can write to PostgreSQL")
	s.Members = s.Members[:2]
	require.Contains(t, headlineTail(s), "no daemon can write to PostgreSQL")
	s.Headline = health.Unknown
	require.Contains(t, headlineTail(s), "cannot tell")
}
