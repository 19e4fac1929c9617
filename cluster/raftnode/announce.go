// Announces this process: founds the cluster where that was asked for, and commits each start's new incarnation (§12, §13).

package raftnode

import (
	"cmp"
	"context"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// announceLoop repeats until the committed member entry is what this process
// says of itself. Once it was and is no longer, another process runs under this
// identity: the later one wins, this one ends.
func (n *Node) announceLoop() {
	changed, unsubscribe := n.hints.Subscribe()
	defer unsubscribe()
	backoff := announceBackoffMin
	announced := false
	for {
		v := n.machine.current()
		m, member := v.Member(n.cfg.Self.Node)
		current := member && m.Incarnation == n.cfg.Self.Incarnation
		if announced && member && !current {
			e := ErrSuperseded.Wrap(nil, "incarnation %s took over from %s", m.Incarnation, n.cfg.Self.Incarnation)
			n.fail(e)
			n.cfg.Exit(ExitSuperseded, e.Error())
			return
		}
		announced = announced || current

		command := n.announcement(v, m, member)
		wait := announceBackoffMax
		if command != nil {
			if err := n.propose(command, changed); err != nil {
				n.cfg.Logger.Debug("announcement not committed yet", "error", err)
				wait, backoff = backoff, min(2*backoff, announceBackoffMax)
			} else {
				backoff = announceBackoffMin
				continue // judge the view that this commit made
			}
		}
		pause := time.NewTimer(wait)
		select {
		case <-n.stop.Done():
			pause.Stop()
			return
		case <-changed:
		case <-pause.C:
		}
		pause.Stop()
	}
}

// announcement is what must still be committed about this process; nil when nothing.
func (n *Node) announcement(v fsm.View, m fsm.Member, member bool) fsm.Command {
	want := n.cfg.Member
	if !v.Initialised() {
		// Only a bootstrapped node leads a configuration without a founded cluster,
		// also one that crashed between the two steps.
		if _, leads := n.established(); !leads {
			return nil
		}
		want.Node, want.Incarnation = n.cfg.Self.Node, n.cfg.Self.Incarnation
		want.Role, want.State = fsm.Voter, fsm.Active
		return fsm.InitCluster{ClusterID: n.cfg.Self.Cluster, Name: n.cfg.ClusterName, Founder: want}
	}
	if !member {
		return nil
	}
	next := m
	next.Incarnation = n.cfg.Self.Incarnation
	next.Name, next.Endpoint, next.Agents = cmp.Or(want.Name, m.Name), cmp.Or(want.Endpoint, m.Endpoint), cmp.Or(want.Agents, m.Agents)
	next.Protocol, next.Build = cmp.Or(want.Protocol, m.Protocol), cmp.Or(want.Build, m.Build)
	if next == m {
		return nil
	}
	return fsm.UpdateMember{
		Node: m.Node, ExpectedIncarnation: m.Incarnation, Incarnation: next.Incarnation,
		Name: next.Name, Endpoint: next.Endpoint, Agents: next.Agents, Protocol: next.Protocol, Build: next.Build,
	}
}

// propose returns nil once this node shows what it had committed: the leader
// answers before the entry is applied here, and the older view would have the
// same proposed again.
func (n *Node) propose(c fsm.Command, changed <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(n.stop, cluster.DefaultRequestTimeout)
	defer cancel()
	commit, err := n.Propose(ctx, fsm.Proposal{Request: cluster.NewRequestID(), Command: c})
	if err != nil {
		return err
	}
	for n.machine.current().Index < commit.Index {
		select {
		case <-ctx.Done():
			return cluster.ErrTimeout.Wrap(ctx.Err(), "entry %d is committed, but not applied here", commit.Index)
		case <-changed:
		}
	}
	return nil
}
