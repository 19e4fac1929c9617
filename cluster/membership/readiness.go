// May a learner vote? A pure predicate over what the leader knows (§62, §231).

package membership

import (
	"fmt"
	"strings"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// What a learner must show before it may vote, and before it counts as Active.
const (
	// MaxLag is in log entries.
	MaxLag = 16
	// MaxSilence bounds the age of its last append answer and of its last health report.
	MaxSilence = 2 * time.Second
)

// Progress is what the leader knows of one member at one moment.
type Progress struct {
	Member    fsm.Member
	LastIndex uint64 // of the leader's log
	Peer      cluster.Peer
	Report    cluster.NodeReport // zero when none came
	Now       time.Time
}

// CaughtUp returns nil when the member receives the log in time and reports its
// health, else ErrNotReady with every number that falls short.
func CaughtUp(p Progress) error {
	var why []string
	miss := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	switch {
	case p.Peer.LastContact.IsZero():
		miss("it has answered no append yet")
	case p.Now.Sub(p.Peer.LastContact) > MaxSilence:
		miss("its last answer is %s old (limit %s)", p.Now.Sub(p.Peer.LastContact).Round(time.Millisecond), MaxSilence)
	}
	if lag := p.LastIndex - min(p.LastIndex, p.Peer.MatchIndex); lag > MaxLag {
		miss("it lags %d entries behind (limit %d)", lag, MaxLag)
	}
	switch {
	case p.Report.Received.IsZero():
		miss("it has reported no health yet")
	case p.Report.Incarnation != p.Member.Incarnation:
		miss("its health report is of another incarnation")
	case p.Now.Sub(p.Report.Received) > MaxSilence:
		miss("its last health report is %s old (limit %s)", p.Now.Sub(p.Report.Received).Round(time.Millisecond), MaxSilence)
	}
	if why == nil {
		return nil
	}
	return ErrNotReady.Wrap(nil, "node %s is not ready: %s", label(p.Member), strings.Join(why, "; "))
}

// CanPromote returns nil when the member may become a voter now.
func CanPromote(p Progress, protocol fsm.VersionRange) error {
	m := p.Member
	switch {
	case m.Role != fsm.Learner:
		return ErrNotReady.Wrap(nil, "node %s is a %s; only a Learner is promoted", label(m), m.Role)
	case m.State != fsm.Active:
		return ErrNotReady.Wrap(nil, "node %s is %s; only an Active learner is promoted", label(m), m.State)
	case m.Protocol.Max < protocol.Min || m.Protocol.Min > protocol.Max:
		return ErrNotReady.Wrap(nil, "node %s speaks protocol %d to %d, this node %d to %d", label(m), m.Protocol.Min, m.Protocol.Max, protocol.Min, protocol.Max)
	}
	return CaughtUp(p)
}

func label(m fsm.Member) string {
	if m.Name == "" {
		return m.Node.String()
	}
	return fmt.Sprintf("%s (%s)", m.Name, m.Node)
}
