// The listener to the daemons' logs: what it counts, and what it must not count.

package seeds

import (
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/raftnode"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/linear"
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

// A daemon that is started again has an end on record that nobody answered, and no proposal.
func TestRestartIsNoUnknownOutcome(t *testing.T) {
	vacated := linear.Grant{Kind: linear.Vacate, Role: fsm.SchedulerLeader, Outcome: linear.Unknown}
	lost := linear.Grant{Kind: linear.Renew, Role: fsm.SchedulerLeader, Outcome: linear.Unknown}
	done := linear.Grant{Kind: linear.Assign, Role: fsm.SchedulerLeader, Outcome: linear.Done}
	require.Zero(t, unanswered([]linear.Grant{vacated, done, vacated}))
	require.Equal(t, 1, unanswered([]linear.Grant{vacated, lost, done}))
}

// A hand-over counts when there was one, as cut off when it had not ended.
func TestHandOverCountsWhenThereWasOne(t *testing.T) {
	failed := cluster.ErrNoQuorum.Wrap(nil, "leadership was not handed over")
	for _, none := range []error{cluster.ErrNotLeader, cluster.ErrEngineClosed, raftnode.ErrStoreStalled.Wrap(nil, "leadership cannot be handed over")} {
		require.Empty(t, handedOver(none, false), none)
		require.Empty(t, handedOver(none, true), none)
	}
	require.Equal(t, []Kind{Transfer}, handedOver(nil, false))
	require.Equal(t, []Kind{Interrupted}, handedOver(failed, false))
	require.Equal(t, []Kind{CutTransfer}, handedOver(nil, true))
	require.Equal(t, []Kind{CutTransfer, Interrupted}, handedOver(failed, true))
}
