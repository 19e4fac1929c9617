// Control pings: a follower proves its view current and tells its health; the leader answers and keeps the reports.

package raftnode

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
)

const methodPing = "ping"

type pingRequest struct {
	Report cluster.HealthReport `cbor:"1,keyasint"`
}

type pingReply struct {
	// Age is how long before this answer the leader was last confirmed by a majority.
	Age time.Duration `cbor:"1,keyasint"`
	// Index is what the leader had applied.
	Index uint64 `cbor:"2,keyasint"`
}

// proof is what the answer to a ping of that time proves: nothing newer than the
// ping, whatever it says, for no guard may outlive what this node has heard.
func (r pingReply) proof(sent time.Time) answer {
	return answer{at: sent.Add(-max(0, r.Age)), index: r.Index}
}

// reports is the leader's memory of its members' health, cleared with every new leadership.
type reports struct {
	mu   sync.Mutex
	byID map[fsm.NodeID]cluster.NodeReport
}

func (r *reports) store(x cluster.NodeReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID[x.Node] = x
}

// heard renews the report of a process that spoke about something else.
func (r *reports) heard(node fsm.NodeID, inc fsm.IncarnationID, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x, ok := r.byID[node]; ok && x.Incarnation == inc && at.After(x.Received) {
		x.Received = at
		r.byID[node] = x
	}
}

func (r *reports) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID = map[fsm.NodeID]cluster.NodeReport{}
}

func (r *reports) list() []cluster.NodeReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]cluster.NodeReport, 0, len(r.byID)+1)
	for _, x := range r.byID {
		out = append(out, x)
	}
	return out
}

// pingLoop sends pings while another node leads. They do not wait for each
// other, so one lost packet costs no confirmation.
func (n *Node) pingLoop() {
	changed, unsubscribe := n.hints.Subscribe()
	defer unsubscribe()
	room := make(chan struct{}, pingsInFlight)
	var sent sync.WaitGroup
	defer sent.Wait()
	last := time.Now()
	due := time.NewTimer(cluster.PingInterval)
	defer due.Stop()
	for {
		select {
		case <-n.stop.Done():
			return
		case <-changed: // perhaps this node was given a role
		case <-due.C:
		}
		leader, known := n.leader()
		interval := n.pingInterval(leader, known)
		if wait := interval - time.Since(last); wait > 0 {
			due.Reset(wait)
			continue
		}
		last = time.Now()
		due.Reset(interval)
		if !known || leader == n.cfg.Self.Node {
			continue
		}
		select {
		case room <- struct{}{}:
			sent.Go(func() {
				defer func() { <-room }()
				n.ping(leader)
			})
		default: // the link is dead and its pings have not timed out yet
		}
	}
}

// pingInterval is short for an owner, whose guards live by its pings (§288), and
// while there is no leader, so that a new one hears of this node at once. The
// leader itself has nobody to ping until a hint tells that it lost its office.
func (n *Node) pingInterval(leader fsm.NodeID, known bool) time.Duration {
	switch {
	case known && leader == n.cfg.Self.Node:
		return leadershipReload
	case !known || n.owns():
		return cluster.PingInterval
	}
	return idlePing
}

// owns reports whether the applied view gives this process any role.
func (n *Node) owns() bool {
	v := n.machine.current()
	return slices.ContainsFunc(fsm.Roles(), func(r fsm.Role) bool {
		return v.Role(r).HeldBy(n.cfg.Self.Node, n.cfg.Self.Incarnation)
	})
}

func (n *Node) ping(leader fsm.NodeID) {
	// The proof counts from before the request exists: an answer that lay in a
	// buffer while this process was paused proves nothing newer.
	sent := n.cfg.Now()
	ctx, cancel := context.WithTimeout(n.stop, cluster.ConfirmationBound)
	defer cancel()
	var reply pingReply
	if err := n.cfg.Control.Call(ctx, leader, transport.FamilyControl, methodPing, pingRequest{Report: n.report()}, &reply); err != nil {
		n.cfg.Logger.Debug("control ping failed", "leader", leader, "error", err)
		return
	}
	n.confirmed.answered(reply.proof(sent), n.machine.passed.Load())
}

// handlePing answers only while this node leads with a majority behind it.
func (n *Node) handlePing(_ context.Context, from transport.Peer, body []byte) (any, error) {
	var req pingRequest
	if err := DecodeRequest(body, &req); err != nil {
		return nil, err
	}
	member, err := n.sender(from)
	if err != nil {
		return nil, err
	}
	if req.Report.Node != member || req.Report.Incarnation != from.Hello.Incarnation {
		return nil, ErrNotPermitted.Wrap(nil, "node %s reported the health of node %s", member, req.Report.Node)
	}
	if _, leads := n.Leadership(); !leads {
		return nil, cluster.ErrNotLeader
	}
	now := n.cfg.Now()
	n.reports.store(cluster.NodeReport{HealthReport: req.Report, Received: now})
	at := n.Confirmed()
	if at.IsZero() {
		return nil, cluster.ErrNoQuorum
	}
	return pingReply{Age: max(0, now.Sub(at)), Index: n.machine.current().Index}, nil
}

// report is this node's own health report.
func (n *Node) report() cluster.HealthReport {
	var r cluster.HealthReport
	if f := n.reporter.Load(); f != nil {
		r = (*f)()
	}
	r.Node, r.Incarnation = n.cfg.Self.Node, n.cfg.Self.Incarnation
	r.AppliedIndex = n.machine.current().Index
	return r
}

// Reports implements cluster.Backend.
func (n *Node) Reports() []cluster.NodeReport {
	if _, leads := n.Leadership(); !leads {
		return nil
	}
	return append(n.reports.list(), cluster.NodeReport{HealthReport: n.report(), Received: n.cfg.Now()})
}
