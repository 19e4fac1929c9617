// Joining, the new node's side (§62): find the leader, redeem the token, then ask for the log until it comes.

package membership

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/raftnode"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
)

// Joiner is a node on its way into the cluster.
type Joiner struct {
	Control Control
	Seeds   []string   // addresses of members, any of them
	Member  fsm.Member // what this node says of itself
	Logger  *slog.Logger
}

const (
	joinPauseMin = 200 * time.Millisecond
	joinPauseMax = 5 * time.Second
	joinCall     = 5 * time.Second
	maxRedirects = 3
)

// Join redeems the token and returns the members it may trust from now on. It
// tries all seeds again and again until ctx ends. The leader's refusal of this
// token or id ends it at once, refusals of single seeds (JoinRejected,
// IncompatibleVersion) when no other seed that answers may yet admit the node.
func (j *Joiner) Join(ctx context.Context, token Token) (fsm.View, error) {
	if err := token.Check(); err != nil {
		return fsm.View{}, err
	}
	return j.repeat(ctx, joinRequest{Step: stepRedeem, Token: string(token), Member: j.Member}, func(fsm.View) bool { return true })
}

// Settle tells the leader that this node listens, until joined says that the
// log has reached it. It also serves a node that crashed between the two steps.
// admitted gets the members of every answer: whoever started without its token
// may trust them from then on. JoinRejected when the leader knows this node as a
// member that has had the log: then its data is lost.
func (j *Joiner) Settle(ctx context.Context, admitted func(fsm.View), joined func() bool) error {
	_, err := j.repeat(ctx, joinRequest{Step: stepListen, Member: j.Member}, func(v fsm.View) bool {
		admitted(v)
		return joined()
	})
	if joined() {
		return nil // the log came while the leader was asked
	}
	return err
}

// CheckNoCluster refuses a bootstrap where a seed answers for a cluster (§60):
// founding a second one beside it would split the fleet. All seeds are asked at once, for 5 s at most;
// silent ones, and those that are still starting by then, do not stop it.
func (j *Joiner) CheckNoCluster(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, joinCall)
	defer cancel()
	found := make(chan error, len(j.Seeds))
	var asked sync.WaitGroup
	for _, seed := range j.Seeds {
		asked.Go(func() {
			if err := j.look(call, seed); err != nil {
				found <- err
				cancel() // one answer is enough
			}
		})
	}
	asked.Wait()
	select {
	case err := <-found:
		return err
	default:
		return ctx.Err()
	}
}

// look refuses when the seed answers for a cluster. While another node only
// starts at the address, it is asked again: it cannot tell yet.
func (j *Joiner) look(ctx context.Context, seed string) error {
	for {
		var reply joinReply
		peer, err := j.Control.CallAddr(ctx, seed, transport.FamilyControl, methodJoin, joinRequest{Step: stepLook, Member: j.Member}, &reply)
		switch {
		case peer.Node() == j.Member.Node:
			return nil
		case err == nil && reply.View.Initialised():
			return ErrClusterExists.Wrap(nil, "seed %s (node %s) belongs to cluster %s", seed, peer.Node(), reply.View.ClusterID)
		case !errors.Is(err, &transport.Error{Code: transport.CodeStarting}):
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(joinPauseMin):
		}
	}
}

func (j *Joiner) repeat(ctx context.Context, req joinRequest, done func(fsm.View) bool) (fsm.View, error) {
	pause := joinPauseMin
	for {
		v, err := j.askAny(ctx, req)
		if err == nil && done(v) {
			return v, nil
		}
		if err != nil && final(err) {
			return fsm.View{}, err
		}
		if err == nil {
			pause = joinPauseMin
		} else if j.Logger != nil {
			j.Logger.Info("joining: no success yet", "error", err, "again_in", pause)
		}
		select {
		case <-ctx.Done():
			return fsm.View{}, errors.Join(err, ctx.Err())
		case <-time.After(pause):
		}
		if err != nil {
			pause = min(2*pause, joinPauseMax)
		}
	}
}

// final reports whether asking the same seed again cannot help.
func final(err error) bool {
	k := cluster.KindOf(err)
	return k == cluster.JoinRejected || k == cluster.IncompatibleVersion
}

// verdict reports whether no other seed can help either: the leader has judged
// the token or the id, or a member knows that the id was removed. Any other final
// refusal is one seed's own: the address may lead to another cluster, the build
// there may be older.
func verdict(err error) bool {
	var told *transport.WireError // of a handler, not of the transport before it
	judged := errors.As(err, &told) && cluster.KindOf(err) == cluster.JoinRejected
	return judged || errors.Is(err, &transport.Error{Code: transport.CodeRemoved})
}

// askAny asks one seed after the other and follows each to the leader. A refusal
// that is final for one seed is returned as such when all were asked and none of
// those that answered, but for this node itself, may yet admit it.
func (j *Joiner) askAny(ctx context.Context, req joinRequest) (fsm.View, error) {
	var refused, hope error
	last := error(ErrNoSeed.Wrap(nil, "no seed is configured"))
	for _, seed := range j.Seeds {
		v, answered, err := j.ask(ctx, seed, req)
		switch {
		case err == nil || verdict(err):
			return v, err
		case !final(err):
			last = err
			if answered {
				hope = err
			}
		case refused == nil:
			refused = err
		}
	}
	switch {
	case refused == nil:
		return fsm.View{}, last
	case hope == nil:
		return fsm.View{}, refused
	}
	return fsm.View{}, errors.Join(hope, refused) // of the kind of the first, and the log shows both
}

// ask also tells whether another node answered at the address.
func (j *Joiner) ask(ctx context.Context, addr string, req joinRequest) (_ fsm.View, answered bool, _ error) {
	for range maxRedirects {
		var reply joinReply
		call, cancel := context.WithTimeout(ctx, joinCall)
		peer, err := j.Control.CallAddr(call, addr, transport.FamilyControl, methodJoin, req, &reply)
		cancel()
		answered = answered || !peer.Node().IsZero() && peer.Node() != j.Member.Node
		if err != nil {
			return fsm.View{}, answered, raftnode.CallError(err)
		}
		if reply.Leader.IsZero() {
			return reply.View, true, nil
		}
		addr = string(reply.Endpoint)
	}
	return fsm.View{}, answered, cluster.ErrNotLeader.Wrap(nil, "the members do not agree on a leader yet")
}
