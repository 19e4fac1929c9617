// The listener to the daemons' logs: what it counts, and what it must not count.

package seeds

import (
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEffectsAreHeard(t *testing.T) {
	tally := NewTally()
	log := slog.New(overheard{slog.NewTextHandler(io.Discard, nil), &listener{tally: tally}}).With("on", "node-a").WithGroup("engine")
	led := func() int { return tally.Counts()[LedEarly] }
	log.Info(saysLeads, "term", uint64(4))
	log.Info(saysCampaign, "leader", "node-b", "term", uint64(4))
	require.Zero(t, led())
	log.Info(saysLeads, "term", uint64(7))
	require.Zero(t, led(), "another one won meanwhile")
	log.Info(saysLeads, "term", uint64(5), "index", uint64(9))
	require.Equal(t, 1, led())
	log.Info(saysCompacted, "index", uint64(9))
	log.Info(saysInstalled)
	log.Info(saysInstalled)
	require.Contains(t, tally.effects(), "leader elected early: 1, snapshot taken: 1, snapshot installed: 2, hand-over failed: 0")
}
