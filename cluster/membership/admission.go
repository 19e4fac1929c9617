// Who may talk to this node: the policy behind transport.Config.Admit (§59, §126).

package membership

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/raftnode"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
)

// Knowledge is what the admission policy needs of the engine; raftnode.Node is one.
type Knowledge interface {
	View() cluster.View
	Suffrage() raftnode.Suffrage
	CommittedSuffrage() raftnode.Suffrage
}

// Admission decides per call and stream:
//
//	before Bind                               nothing, "the node is starting"
//	a removed node                            nothing, with the reason
//	a member                                  every node family (an observer: not raft)
//	a server of the library's configuration   every node family: after a restart the
//	                                          view may lag behind the log
//	a voter of the join reply                 every node family, until the first
//	                                          committed configuration is here
//	anyone else                               "join" alone; and raft, once a majority
//	                                          of the voters known here vouches for it
type Admission struct {
	self    cluster.Identity
	logger  *slog.Logger
	now     func() time.Time
	engine  atomic.Pointer[engine]
	vouched vouching

	mu      sync.Mutex
	trusted []fsm.NodeID
}

// engine is what exists only after the endpoint that asks this policy.
type engine struct {
	knowledge Knowledge
	control   Control
}

// NewAdmission makes a policy that admits nobody until Bind is called: whoever
// asks is told to ask again (transport.CodeStarting), not that he may not.
func NewAdmission(self cluster.Identity, logger *slog.Logger, now func() time.Time) *Admission {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if now == nil {
		now = time.Now
	}
	a := &Admission{self: self, logger: logger, now: now}
	a.vouched.init()
	return a
}

// Bind gives the policy the engine and the endpoint, which are made after it. The
// handlers of both, and those of the Registrar, must be registered before: what
// is admitted and not served looks like an older build, which is final.
func (a *Admission) Bind(k Knowledge, c Control) { a.engine.Store(&engine{knowledge: k, control: c}) }

// Trust admits the members of a join reply until the log has brought the view.
func (a *Admission) Trust(v fsm.View) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trusted = nil
	for _, m := range v.Members {
		if m.Role == fsm.Voter {
			a.trusted = append(a.trusted, m.Node)
		}
	}
}

// Close ends the inquiries about unknown peers and waits for them.
func (a *Admission) Close() { a.vouched.close() }

// Admit is transport.Config.Admit of the nodes' socket.
func (a *Admission) Admit(p transport.Peer, family transport.Family, method string) error {
	node := p.Node()
	if node.IsZero() {
		return transport.Refuse(transport.CodeWrongKind, "%s is not a node", p.Subject)
	}
	e := a.engine.Load()
	if e == nil {
		return transport.Refuse(transport.CodeStarting, "node %s has no engine yet", a.self.Node)
	}
	joins := family == transport.FamilyControl && method == methodJoin
	v := e.knowledge.View()
	if v.Tombstoned(node) {
		return transport.Refuse(transport.CodeRemoved, "node %s was removed from the cluster", node)
	}
	m, member := v.Member(node)
	switch {
	case member && m.Role == fsm.Observer && family == transport.FamilyRaft:
		return transport.Refuse(transport.CodeNotMember, "node %s is an observer", node)
	case member, joins:
		return nil
	case e.knowledge.Suffrage().Contains(node):
		return nil
	case !v.Initialised() && a.trusts(node):
		return nil
	case family == transport.FamilyRaft && a.vouchedFor(e, node):
		return nil
	}
	return transport.Refuse(transport.CodeNotMember, "node %s is not a member", node)
}

func (a *Admission) trusts(node fsm.NodeID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.trusted, node)
}
