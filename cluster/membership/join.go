// Joining, the cluster's side (§62): a certificate says who, a token says that an operator wants it, the log says it is so.

package membership

import (
	"cmp"
	"context"
	"errors"
	"net"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/raftnode"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
)

const (
	methodJoin = "join" // the only thing a node that is no member may call
	methodHere = "here" // the leader asks whether a joiner really listens
)

// maxJoin bounds a join request, in bytes: strangers may send it.
const maxJoin = 16 << 10

// joinStep is what a joiner asks for.
type joinStep uint8

const (
	stepLook   joinStep = 1 // does a cluster exist here?
	stepRedeem joinStep = 2 // admit me: here is my token
	stepListen joinStep = 3 // I am admitted and listen: send me the log
)

type joinRequest struct {
	Step   joinStep   `cbor:"1,keyasint"`
	Token  string     `cbor:"2,keyasint,omitempty"`
	Member fsm.Member `cbor:"3,keyasint"` // what the joiner says of itself
}

// joinReply carries the view, or names the leader to ask instead. The joiner
// dials the leader itself, so that its certificate, not a relaying node, speaks for it.
type joinReply struct {
	Leader   fsm.NodeID   `cbor:"1,keyasint,omitempty"` // zero when this node has answered
	Endpoint fsm.Endpoint `cbor:"2,keyasint,omitempty"`
	View     fsm.View     `cbor:"3,keyasint"`
}

type hereReply struct {
	Incarnation fsm.IncarnationID `cbor:"1,keyasint"`
}

func (r *Registrar) handleJoin(ctx context.Context, from transport.Peer, body []byte) (any, error) {
	node := from.Node()
	if node.IsZero() {
		return nil, ErrNotMember.Wrap(nil, "%s is not a node", from.Subject)
	}
	var req joinRequest
	if err := raftnode.DecodeRequest(body, &req); err != nil {
		return nil, err
	}
	v := r.cfg.Engine.View()
	if req.Step == stepLook {
		return joinReply{View: fsm.View{ClusterID: v.ClusterID, ClusterName: v.ClusterName}}, nil
	}
	if _, leads := r.cfg.Engine.Leadership(); !leads {
		leader, known := v.Member(v.KnownLeader)
		if !known || leader.Node == r.cfg.Engine.Self().Node {
			return nil, cluster.ErrNoQuorum.Wrap(nil, "no leader is known to this node")
		}
		return joinReply{Leader: leader.Node, Endpoint: leader.Endpoint}, nil
	}
	switch req.Step {
	case stepRedeem:
		return r.redeem(ctx, from, node, req)
	case stepListen:
		return r.listens(v, node)
	}
	return nil, raftnode.ErrMalformed.Wrap(nil, "unknown join step %d", req.Step)
}

// redeem admits the node as a Joining learner. Repeating it with the same
// certificate is harmless until the node is Active.
func (r *Registrar) redeem(ctx context.Context, from transport.Peer, node fsm.NodeID, req joinRequest) (any, error) {
	if !r.joins.allow(source(from)) {
		return nil, ErrTooManyJoins.Wrap(nil, "more than %d attempts a minute from node %s, or %d in all", joinsPerSource, node, joinsInAll)
	}
	reply, err := r.admit(ctx, from, node, req)
	r.audit(ctx, "node "+node.String(), "cluster.join", node.String(), req.Member.Name, err)
	if err != nil {
		r.cfg.Logger.Warn("join refused", "node", node, "remote", from.Remote, "error", err)
		return nil, err
	}
	r.cfg.Logger.Info("join accepted", "node", node, "name", req.Member.Name, "endpoint", req.Member.Endpoint)
	return reply, nil
}

// joinAttempts bounds the retries while other members join at the same time.
const joinAttempts = 8

func (r *Registrar) admit(ctx context.Context, from transport.Peer, node fsm.NodeID, req joinRequest) (joinReply, error) {
	// Decided on proven state: a deposed leader must not answer from an old view.
	v, err := r.cfg.Engine.LinearizableView(ctx)
	if err != nil {
		return joinReply{}, err
	}
	if err := admissible(v.View, node); err != nil {
		return joinReply{}, err
	}
	hash, err := Token(req.Token).hash()
	if err != nil {
		return joinReply{}, err
	}
	if err := r.cfg.Tokens.RedeemToken(ctx, hash, v.ClusterID, node, from.Certificate); err != nil {
		return joinReply{}, tokenError(err)
	}
	m := req.Member
	m.Node, m.Incarnation, m.Role, m.State = node, from.Hello.Incarnation, fsm.Learner, fsm.Joining
	for try := 0; ; try++ {
		old, known := v.Member(node)
		m.Role, m.State = cmp.Or(old.Role, m.Role), cmp.Or(old.State, m.State)
		if old == m {
			return joinReply{View: v.View}, nil
		}
		_, err := r.propose(ctx, admission(old, m, known, v.Config))
		if err != nil && (!isConflict(err) || try == joinAttempts) {
			return joinReply{}, err
		}
		v = r.cfg.Engine.View()
	}
}

// admission is the command that makes the committed entry what the joiner says
// now: it may have started again, elsewhere, before the log ever reached it.
func admission(old, m fsm.Member, known bool, config fsm.ConfigVersion) fsm.Command {
	if !known {
		return fsm.AddLearner{ExpectedConfig: config, Member: m}
	}
	return fsm.UpdateMember{
		Node: m.Node, ExpectedIncarnation: old.Incarnation, Incarnation: m.Incarnation,
		Name: m.Name, Endpoint: m.Endpoint, Agents: m.Agents, Protocol: m.Protocol, Build: m.Build,
	}
}

// listens notes that an admitted node waits for the log. The repair loop dials
// it back before anything is changed: a mistyped address costs nothing. A node
// that had the log before has lost it: as a voter it would vote a second time in
// a term, and would not hold what it acknowledged.
func (r *Registrar) listens(v cluster.View, node fsm.NodeID) (any, error) {
	m, known := v.Member(node)
	switch {
	case !known:
		return nil, ErrNotMember.Wrap(nil, "node %s has not joined", node)
	case m.State != fsm.Joining:
		return nil, ErrAlreadyMember.Wrap(nil, "node %s is a member already (%s %s), but holds no data", label(m), m.State, m.Role)
	}
	select {
	case r.poke <- struct{}{}:
	default:
	}
	return joinReply{View: v.View}, nil
}

func (r *Registrar) handleHere(_ context.Context, from transport.Peer, _ []byte) (any, error) {
	return hereReply{Incarnation: r.cfg.Engine.Self().Incarnation}, nil
}

// member refuses a caller that is not in the committed view.
func (r *Registrar) member(from transport.Peer) error {
	v := r.cfg.Engine.View()
	if _, known := v.Member(from.Node()); !known || from.Node().IsZero() {
		return ErrNotMember.Wrap(nil, "%s is not a member", from.Subject)
	}
	return nil
}

// source is what join attempts are counted by: who and from where, so that one
// certificate cannot use up the room of others behind the same address.
func source(from transport.Peer) string {
	host := ""
	if from.Remote != nil {
		host = from.Remote.String()
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
	}
	return from.Subject.ID + "@" + host
}

// tokenError keeps the store's verdict; anything else means that PostgreSQL
// could not be asked, which a joiner may wait out.
func tokenError(err error) error {
	var typed *cluster.Error
	if errors.As(err, &typed) {
		return err
	}
	return ErrTokenStore.Wrap(err, "")
}

// reachBound is how long a joiner has to answer the leader's dial back.
const reachBound = time.Second
