// Promotion: a caught-up learner becomes a voter by an operator's explicit act (§62, §63, §231).

package membership

import (
	"context"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/raftnode"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
)

const methodPromote = "promote"

// PromoteRequest asks to make a learner a voter (POST /v1/cluster/promote).
type PromoteRequest struct {
	Node string `json:"node" cbor:"1,keyasint"` // name, id or unique prefix
}

// Promoted tells the configuration afterwards.
type Promoted struct {
	APIVersion string            `json:"apiVersion" cbor:"-"`
	Kind       string            `json:"kind" cbor:"-"`
	Node       fsm.NodeID        `json:"node" cbor:"1,keyasint"`
	Name       string            `json:"name" cbor:"2,keyasint"`
	Config     fsm.ConfigVersion `json:"config_version" cbor:"3,keyasint"`
	Voters     int               `json:"voters" cbor:"4,keyasint"`
	Already    bool              `json:"already" cbor:"5,keyasint"` // it was a voter before
}

// Promote makes a learner a voter, through the leader where this node does not
// lead. A node that is one already is left alone. ErrNotReady states the numbers.
func (r *Registrar) Promote(ctx context.Context, req PromoteRequest, actor string) (Promoted, error) {
	p, err := r.promoteAnywhere(ctx, req)
	r.audit(ctx, actor, "cluster.promote", req.Node, p.Name, err)
	p.APIVersion, p.Kind = apiVersion, "Promotion"
	return p, err
}

func (r *Registrar) promoteAnywhere(ctx context.Context, req PromoteRequest) (Promoted, error) {
	if _, leads := r.cfg.Engine.Leadership(); leads {
		return r.promote(ctx, req)
	}
	leader := r.cfg.Engine.View().KnownLeader
	switch {
	case leader.IsZero():
		return Promoted{}, cluster.ErrNoQuorum.Wrap(nil, "no leader is known to this node")
	case leader == r.cfg.Engine.Self().Node:
		return Promoted{}, cluster.ErrNotLeader // its barrier has not passed yet
	}
	var p Promoted
	if err := r.cfg.Control.Call(ctx, leader, transport.FamilyControl, methodPromote, req, &p); err != nil {
		return Promoted{}, raftnode.CallError(err)
	}
	return p, nil
}

// handlePromote serves a member that was asked by an operator whom it authorised.
func (r *Registrar) handlePromote(ctx context.Context, from transport.Peer, body []byte) (any, error) {
	if err := r.member(from); err != nil {
		return nil, err
	}
	var req PromoteRequest
	if err := raftnode.DecodeRequest(body, &req); err != nil {
		return nil, err
	}
	if _, leads := r.cfg.Engine.Leadership(); !leads {
		return nil, cluster.ErrNotLeader
	}
	p, err := r.promote(ctx, req)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// promote commits the intent, then gives the vote. A crash between the two is
// finished by the next leader's repair. Both steps are repeated while the
// configuration moves under them: another node may be joining at the same time.
func (r *Registrar) promote(ctx context.Context, req PromoteRequest) (p Promoted, err error) {
	if err = untilSettled(ctx, func() error {
		p, err = r.intend(ctx, req)
		return err
	}); err != nil {
		return Promoted{}, err
	}
	if err := untilSettled(ctx, func() error { return r.cfg.Engine.AddVoter(ctx, p.Node) }); err != nil {
		return Promoted{}, err
	}
	r.cfg.Logger.Info("member promoted", "node", p.Node, "name", p.Name, "already", p.Already)
	p.Config, p.Voters = r.cfg.Engine.View().Config, len(r.cfg.Engine.Suffrage().Voters)
	return p, nil
}

// intend commits that the member is a voter, if it may become one and is none yet.
func (r *Registrar) intend(ctx context.Context, req PromoteRequest) (Promoted, error) {
	v := r.cfg.Engine.View()
	m, err := Resolve(v.View, req.Node)
	if err != nil {
		return Promoted{}, err
	}
	p := Promoted{Node: m.Node, Name: m.Name, Already: m.Role == fsm.Voter}
	if p.Already {
		return p, nil
	}
	if err := CanPromote(r.progress(m), r.cfg.Protocol); err != nil {
		return Promoted{}, err
	}
	// Before the intent is committed: a vote that cannot be given now is refused, not left pending.
	if err := r.cfg.Engine.Settled(); err != nil {
		return Promoted{}, err
	}
	_, err = r.propose(ctx, fsm.PromoteVoter{ExpectedConfig: v.Config, Node: m.Node})
	return p, err
}

// settlePause is how long a configuration that moved gets before it is read again.
const settlePause = 20 * time.Millisecond

// untilSettled repeats f while a configuration that moved between reading and
// proposing is all that stops it, for as long as a request may take.
func untilSettled(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, cluster.DefaultRequestTimeout)
	defer cancel()
	for {
		err := f()
		if err == nil || !isConflict(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(settlePause):
		}
	}
}
