// Package membership lets nodes into the cluster: tokens, joining, promotion, and who may talk to this node (§55–§63).
package membership

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/cluster/raftnode"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
)

// Engine is what this package needs of the Raft engine; raftnode.Node is one.
type Engine interface {
	Self() cluster.Identity
	View() cluster.View
	LinearizableView(ctx context.Context) (cluster.View, error)
	Changes() (hint <-chan struct{}, stop func())
	Propose(ctx context.Context, p fsm.Proposal) (cluster.Commit, error)
	Leadership() (cluster.Leadership, bool)
	Reports() []cluster.NodeReport
	Peers() []cluster.Peer
	Suffrage() raftnode.Suffrage
	LastIndex() uint64
	Settled() error
	AddNonvoter(ctx context.Context, node fsm.NodeID) error
	AddVoter(ctx context.Context, node fsm.NodeID) error
}

// Control is the control family of the endpoint; transport.Endpoint is one.
type Control interface {
	Call(ctx context.Context, to fsm.NodeID, family transport.Family, method string, req, resp any) error
	CallAddr(ctx context.Context, addr string, family transport.Family, method string, req, resp any) (transport.Peer, error)
	Handle(family transport.Family, method string, h transport.Handler)
	HandleUpTo(family transport.Family, method string, maxBody int, h transport.Handler)
}

// Config describes a Registrar.
type Config struct {
	Engine   Engine
	Control  Control
	Tokens   cluster.TokenStore
	Audit    cluster.Audit
	Protocol fsm.VersionRange // what this build speaks
	Logger   *slog.Logger
	Now      func() time.Time
}

// Registrar serves membership on one node. Every node answers; what only the
// leader can do is handed to it.
type Registrar struct {
	cfg    Config
	joins  limiter
	poke   chan struct{} // a joiner listens: look now
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// Start registers the handlers and begins to finish committed intents whenever this node leads.
func Start(cfg Config) *Registrar {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Registrar{cfg: cfg, joins: limiter{now: cfg.Now}, poke: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	cfg.Control.HandleUpTo(transport.FamilyControl, methodJoin, maxJoin, r.handleJoin)
	cfg.Control.Handle(transport.FamilyControl, methodHere, r.handleHere)
	cfg.Control.Handle(transport.FamilyControl, methodVouch, r.handleVouch)
	cfg.Control.Handle(transport.FamilyControl, methodPromote, r.handlePromote)
	r.done.Go(func() { r.repairLoop(ctx) })
	return r
}

// Close ends the repair loop and waits for it.
func (r *Registrar) Close() {
	r.cancel()
	r.done.Wait()
}

// AddRequest asks for a join token (POST /v1/cluster/add).
type AddRequest struct {
	Node fsm.NodeID `json:"node"`           // the id that `forgeyard pki issue node` printed
	Name string     `json:"name,omitempty"` // a label for the answer
	TTL  string     `json:"ttl,omitempty"`  // a Go duration; empty: DefaultTokenTTL
}

// Added is the only place where a token is ever shown.
type Added struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	ClusterID  fsm.ClusterID `json:"cluster_id"`
	Node       fsm.NodeID    `json:"node"`
	Name       string        `json:"name,omitempty"`
	Token      string        `json:"token"`
	TTLSeconds int64         `json:"ttl_seconds"`
}

// Add makes a single-use token for one node id (§230). It needs PostgreSQL but
// not the leader: the token is checked against the committed members again when
// it is redeemed.
func (r *Registrar) Add(ctx context.Context, req AddRequest, actor string) (Added, error) {
	added, err := r.add(ctx, req, actor)
	r.audit(ctx, actor, "cluster.add", req.Node.String(), added.Name, err)
	return added, err
}

func (r *Registrar) add(ctx context.Context, req AddRequest, actor string) (Added, error) {
	ttl := DefaultTokenTTL
	if req.TTL != "" {
		var err error
		if ttl, err = time.ParseDuration(req.TTL); err != nil || ttl < time.Second || ttl > MaxTokenTTL {
			return Added{}, ErrToken.Wrap(err, "ttl %q is outside 1s to %s", req.TTL, MaxTokenTTL)
		}
	}
	v := r.cfg.Engine.View()
	switch {
	case !v.Initialised():
		return Added{}, ErrNotFounded
	case len(req.Name) > fsm.MaxName:
		return Added{}, access.ErrBadRequest.Because("name: %d bytes, at most %d", len(req.Name), fsm.MaxName)
	case req.Node.IsZero():
		return Added{}, ErrNoMember.Wrap(nil, "the node id is missing: `forgeyard pki issue node` prints it")
	}
	if err := admissible(v.View, req.Node); err != nil {
		return Added{}, err
	}
	token := newToken()
	hash, err := token.hash()
	if err != nil {
		return Added{}, err
	}
	if err := r.cfg.Tokens.CreateToken(ctx, hash, v.ClusterID, req.Node, ttl, actor); err != nil {
		return Added{}, err
	}
	return Added{
		APIVersion: apiVersion, Kind: "JoinToken", ClusterID: v.ClusterID, Node: req.Node, Name: req.Name,
		Token: string(token), TTLSeconds: int64(ttl / time.Second),
	}, nil
}

// admissible refuses ids that may not join: removed ones for ever, members that finished joining.
func admissible(v fsm.View, node fsm.NodeID) error {
	if v.Tombstoned(node) {
		return ErrRemoved.Wrap(nil, "node %s was removed from the cluster and may never return", node)
	}
	if m, known := v.Member(node); known && m.State != fsm.Joining {
		return ErrAlreadyMember.Wrap(nil, "node %s is a member already (%s %s)", label(m), m.State, m.Role)
	}
	return nil
}

// auditBound is how much longer an answer may take while PostgreSQL is down.
const auditBound = time.Second

// audit records an administrative act, accepted or refused. The act stands
// without PostgreSQL: the fleet must be administrable while it is down. It is
// recorded also when the caller has left.
func (r *Registrar) audit(ctx context.Context, actor, action, target, detail string, result error) {
	rec := cluster.AuditRecord{
		Actor: actor, Action: action, Target: target, Outcome: "accepted", Detail: detail,
		Node: r.cfg.Engine.Self().Node, Epoch: r.cfg.Engine.View().Epoch,
	}
	if result != nil {
		rec.Outcome, rec.Detail = "refused", result.Error()
		if cluster.OutcomeUnknown(result) {
			rec.Outcome = "unknown"
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditBound)
	defer cancel()
	if err := r.cfg.Audit.Record(ctx, rec); err != nil {
		r.cfg.Logger.Warn("audit record not written", "action", action, "target", target, "outcome", rec.Outcome, "error", err)
	}
}

func (r *Registrar) propose(ctx context.Context, c fsm.Command) (cluster.Commit, error) {
	return r.cfg.Engine.Propose(ctx, fsm.Proposal{Request: cluster.NewRequestID(), Command: c})
}

// progress gathers what this node, as the leader, knows of a member.
func (r *Registrar) progress(m fsm.Member) Progress {
	p := Progress{Member: m, LastIndex: r.cfg.Engine.LastIndex(), Now: r.cfg.Now()}
	for _, x := range r.cfg.Engine.Peers() {
		if x.Node == m.Node {
			p.Peer = x
		}
	}
	for _, x := range r.cfg.Engine.Reports() {
		if x.Node == m.Node {
			p.Report = x
		}
	}
	return p
}

// isConflict: the configuration moved between reading and proposing; read again.
func isConflict(err error) bool {
	var e *cluster.Error
	return errors.As(err, &e) && slices.Contains([]string{"FY-CMD-005", raftnode.ErrConfigurationMoved.Code}, e.Code)
}
