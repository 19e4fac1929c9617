// Vouching: a node that lags behind its members asks the voters it knows about a peer it does not, so that it does not lock
// out a leader it has not heard of.

package membership

import (
	"context"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/cluster/raftnode"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
)

const (
	methodVouch = "vouch"

	vouchBound = 2 * time.Second  // for one round of questions
	vouchLasts = 30 * time.Second // by then the log has brought the member, or it is asked about again
	vouchPause = time.Second      // between two rounds about one peer
	vouchAlarm = 30 * time.Second // without confirmation the operator is told
	maxUnknown = 16               // peers asked about at one time
)

type vouchRequest struct {
	Node fsm.NodeID `cbor:"1,keyasint"`
}

type vouchReply struct {
	Member bool `cbor:"1,keyasint"`
}

// vouching remembers what was asked about unknown peers. The zero times mean never.
type vouching struct {
	ctx    context.Context
	cancel context.CancelFunc
	rounds sync.WaitGroup

	mu    sync.Mutex
	peers map[fsm.NodeID]*inquiry
}

type inquiry struct {
	first, asked, confirmed time.Time
	running, alarmed        bool
}

func (v *vouching) init() {
	v.ctx, v.cancel = context.WithCancel(context.Background())
	v.peers = map[fsm.NodeID]*inquiry{}
}

func (v *vouching) close() {
	v.cancel()
	v.rounds.Wait()
}

// vouchedFor reports whether a majority confirmed the peer lately, and begins a
// round of questions when one is due. It does not wait for the answers: the
// peer tries again.
func (a *Admission) vouchedFor(e *engine, node fsm.NodeID) bool {
	v := &a.vouched
	v.mu.Lock()
	defer v.mu.Unlock()
	now := a.now()
	q := v.peers[node]
	if q == nil {
		if len(v.peers) >= maxUnknown {
			v.forget(now)
		}
		if len(v.peers) >= maxUnknown || v.ctx.Err() != nil {
			return false
		}
		q = &inquiry{first: now}
		v.peers[node] = q
	}
	if !q.confirmed.IsZero() && now.Sub(q.confirmed) < vouchLasts {
		return true
	}
	if !q.running && now.Sub(q.asked) >= vouchPause {
		q.running, q.asked = true, now
		v.rounds.Go(func() { a.inquire(e, node, q) })
	}
	return false
}

// forget drops inquiries that nobody needs any more.
func (v *vouching) forget(now time.Time) {
	for n, q := range v.peers {
		if !q.running && now.Sub(q.asked) > vouchLasts {
			delete(v.peers, n)
		}
	}
}

// inquire asks every voter of the last committed configuration known here, over
// connections that this node dials; this node counts itself. An entry of the log
// that may yet be replaced names no witness.
func (a *Admission) inquire(e *engine, node fsm.NodeID, q *inquiry) {
	voters := e.knowledge.CommittedSuffrage().Voters
	yes := a.poll(e, voters, node)
	confirmed := len(voters) > 0 && yes > len(voters)/2

	a.vouched.mu.Lock()
	defer a.vouched.mu.Unlock()
	now := a.now()
	q.running = false
	switch {
	case confirmed:
		q.confirmed, q.alarmed = now, false
		a.logger.Info("unknown peer confirmed", "node", node, "voters", len(voters), "yes", yes)
	case now.Sub(q.first) > vouchAlarm && !q.alarmed:
		q.alarmed = true
		a.logger.Error(ErrUnconfirmedPeer.Message, "code", ErrUnconfirmedPeer.Code, "node", node,
			"voters", len(voters), "yes", yes, "hint", ErrUnconfirmedPeer.Hint)
	}
}

func (a *Admission) poll(e *engine, voters []fsm.NodeID, node fsm.NodeID) (yes int) {
	answers := make(chan bool, len(voters))
	var calls sync.WaitGroup
	ctx, cancel := context.WithTimeout(a.vouched.ctx, vouchBound)
	defer cancel()
	for _, voter := range voters {
		if voter == a.self.Node {
			answers <- true
			continue
		}
		calls.Go(func() {
			var reply vouchReply
			err := e.control.Call(ctx, voter, transport.FamilyControl, methodVouch, vouchRequest{Node: node}, &reply)
			answers <- err == nil && reply.Member
		})
	}
	calls.Wait()
	close(answers)
	for a := range answers {
		if a {
			yes++
		}
	}
	return yes
}

// handleVouch answers from the committed view of this node.
func (r *Registrar) handleVouch(_ context.Context, from transport.Peer, body []byte) (any, error) {
	var req vouchRequest
	if err := raftnode.DecodeRequest(body, &req); err != nil {
		return nil, err
	}
	v := r.cfg.Engine.View()
	_, member := v.Member(req.Node)
	return vouchReply{Member: member && !v.Tombstoned(req.Node)}, nil
}
