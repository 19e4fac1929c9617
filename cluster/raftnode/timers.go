// The numbers of the engine: timers, snapshot cadence and bounds, all in one place.

package raftnode

import (
	"fmt"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
)

// Timers are the consensus timers (§185, §186). The library jitters them: an
// election starts between one and two ElectionTimeouts, heartbeats leave about
// every HeartbeatTimeout/10.
type Timers struct {
	HeartbeatTimeout   time.Duration // silence after which a follower campaigns
	ElectionTimeout    time.Duration // how long a campaign may last
	LeaderLeaseTimeout time.Duration // silence of a majority after which a leader steps down
	CommitTimeout      time.Duration // an idle follower learns a commit between one and two of these late
}

// DefaultTimers are the shipped timers: a failover ends within about 1.5 s.
// The leader repeats its commit index to every follower each CommitTimeout, also
// when nothing happens: most of what an idle fleet costs. 100 ms is the most that
// lets a follower's proofs, which wait for what was committed, stay well within
// ConfirmationBound.
func DefaultTimers() Timers {
	return Timers{
		HeartbeatTimeout:   500 * time.Millisecond,
		ElectionTimeout:    500 * time.Millisecond,
		LeaderLeaseTimeout: 250 * time.Millisecond,
		CommitTimeout:      100 * time.Millisecond,
	}
}

const (
	minTimer = 20 * time.Millisecond
	maxTimer = 10 * time.Second

	// snapshotEntries, snapshotBytes: defaults of SnapshotPolicy; the state is
	// small, and 2 MiB are a quarter of 1024 entries of the largest size. Entries
	// are looked at every snapshotInterval, bytes at every write, and whatever
	// changed is compacted within snapshotPeriod.
	snapshotEntries  = 1024
	snapshotBytes    = 2 << 20
	snapshotInterval = 2 * time.Second
	snapshotPeriod   = 2 * time.Minute
	// trailingLogs is the default of SnapshotPolicy.Trailing.
	trailingLogs = 1024
	// snapshotsKept on disk; start falls back to an older one that is whole.
	snapshotsKept = 3

	// storeLockTimeout bounds the wait for another process that holds the log store.
	storeLockTimeout = 2 * time.Second
	// defaultStallLimit is how long one log write, or one apply, may be under way before the node stops leading.
	defaultStallLimit = 10 * time.Second
	// markInterval is how often the high-water mark follows the applied index.
	markInterval = time.Second

	// idlePing is the ping interval of a node that owns nothing: often enough that
	// what it says of its view stays confirmed within ConfirmationBound.
	idlePing = cluster.ConfirmationBound / 2
	// pingsInFlight bounds unanswered control pings, so that a dead link costs no pile of them.
	pingsInFlight = 8
	// announceBackoff bounds the retries of the new incarnation's announcement.
	announceBackoffMin = 100 * time.Millisecond
	announceBackoffMax = 2 * time.Second
	// settleBound is how long a membership change waits for every voter to store it.
	settleBound = 2 * time.Second
	settlePoll  = 5 * time.Millisecond
	// drainBound is how long Close waits for proposals in flight.
	drainBound = 2 * time.Second
	// closeBound is how long Close waits after that for the library, drainBound once more and the
	// store's last writes; a hung disk can hold them for ever.
	closeBound = 10 * time.Second
)

// validate refuses timers under which no leader could hold its office: the
// library itself accepts a lease far below the heartbeat interval, which makes
// every leader step down at once.
func (t Timers) validate() error {
	for _, x := range []struct {
		name  string
		value time.Duration
	}{
		{"heartbeat timeout", t.HeartbeatTimeout}, {"election timeout", t.ElectionTimeout}, {"leader lease timeout", t.LeaderLeaseTimeout},
	} {
		if x.value < minTimer || x.value > maxTimer {
			return ErrTimers.Wrap(nil, "%s is %s, outside %s to %s", x.name, x.value, minTimer, maxTimer)
		}
	}
	switch {
	case t.CommitTimeout < time.Millisecond || t.CommitTimeout > t.HeartbeatTimeout:
		return ErrTimers.Wrap(nil, "commit timeout %s is outside 1ms to the heartbeat timeout %s", t.CommitTimeout, t.HeartbeatTimeout)
	case t.ElectionTimeout < t.HeartbeatTimeout:
		return ErrTimers.Wrap(nil, "election timeout %s is below heartbeat timeout %s", t.ElectionTimeout, t.HeartbeatTimeout)
	case t.LeaderLeaseTimeout > t.HeartbeatTimeout:
		return ErrTimers.Wrap(nil, "leader lease timeout %s is above heartbeat timeout %s", t.LeaderLeaseTimeout, t.HeartbeatTimeout)
	case t.LeaderLeaseTimeout < t.HeartbeatTimeout/4:
		// Heartbeats leave every HeartbeatTimeout/10 at best; below a quarter two lost ones depose the leader.
		return ErrTimers.Wrap(nil, "leader lease timeout %s is below a quarter of heartbeat timeout %s", t.LeaderLeaseTimeout, t.HeartbeatTimeout)
	}
	return nil
}

func (t Timers) String() string {
	return fmt.Sprintf("heartbeat %s, election %s, lease %s, commit %s", t.HeartbeatTimeout, t.ElectionTimeout, t.LeaderLeaseTimeout, t.CommitTimeout)
}
