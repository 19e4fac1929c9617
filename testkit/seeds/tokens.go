// Token races: certificates that want what one token gives, a stranger who found it, and one that comes too late.

package seeds

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/membership"
	"github.com/forgeyard/forgeyard/roles/store"
	"github.com/forgeyard/forgeyard/testkit/bubble"
)

// joinPatience bounds one attempt to join, askPatience the asking for a token.
const (
	joinPatience = 20 * time.Second
	askPatience  = 20 * time.Second
)

// token asks one daemon after the other for a join token; "" when none gave one in time.
func (w *world) token(ctx context.Context, node string, id membership.AddRequest) membership.Token {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	for i := 0; ctx.Err() == nil; i++ {
		var added membership.Added
		if _, err := w.node(i).Ask(ctx, http.MethodPost, "/v1/cluster/add", nil, id, &added); err == nil {
			return membership.Token(added.Token)
		}
		pass(ctx, tryAgain)
	}
	w.note("no token for %s in time", node)
	return ""
}

// raceForToken lets two certificates of one new node and a stranger redeem the
// token at the same time. One of the two may win, the stranger never.
func (w *world) raceForToken(ctx context.Context, twins [2]*bubble.Stranger, thief *bubble.Stranger) {
	token := w.token(ctx, "twins", membership.AddRequest{Node: twins[0].ID})
	if token == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, joinPatience)
	defer cancel()
	var results [3]error
	var racing sync.WaitGroup
	for i, racer := range []*bubble.Stranger{twins[0], twins[1], thief} {
		racing.Go(func() { results[i] = racer.Redeem(ctx, token) })
	}
	racing.Wait()
	w.note("a token was raced for: twins %v and %v, thief %v", results[0], results[1], results[2])
	if results[0] == nil && results[1] == nil {
		w.problem("two certificates of node %s were admitted with one token", twins[0].ID)
	}
	if results[2] == nil {
		w.problem("node %s was admitted with the token of node %s", thief.ID, twins[0].ID)
	}
	if decided(results[0]) && decided(results[1]) && errors.Is(results[2], store.ErrTokenNode) {
		w.tally.Add(TokenRace, 1)
	}
}

// decided: admitted, or refused because the other certificate was.
func decided(err error) bool { return err == nil || errors.Is(err, store.ErrTokenUsed) }

// comeTooLate redeems a token after its time.
func (w *world) comeTooLate(ctx context.Context, late *bubble.Stranger) {
	const life = time.Second
	token := w.token(ctx, "late", membership.AddRequest{Node: late.ID, TTL: life.String()})
	if token == "" {
		return
	}
	pass(ctx, life+3*clockStep)
	ctx, cancel := context.WithTimeout(ctx, joinPatience)
	defer cancel()
	err := late.Redeem(ctx, token)
	w.note("a token was redeemed after its time: %v", err)
	switch {
	case err == nil:
		w.problem("node %s was admitted with an expired token", late.ID)
	case errors.Is(err, store.ErrTokenExpired):
		w.tally.Add(TokenExpiry, 1)
	}
}

// stranger is another process that only ever tries to join: a new node, or the one given.
func (w *world) stranger(id ...*bubble.Stranger) *bubble.Stranger {
	w.strangers++
	node := cluster.NewNodeID()
	if len(id) > 0 {
		node = id[0].ID
	}
	return w.fleet.NewStranger(node, w.strangers)
}

// note writes a line into the log of the run.
func (w *world) note(format string, args ...any) { w.log.Info(fmt.Sprintf(format, args...)) }

// problem notes a violation; the run goes on and fails at its end.
func (w *world) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.log.Error(text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, text)
}
