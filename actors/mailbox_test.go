// Mailboxes: what is posted to an actor that is just being spawned.

package actors

import (
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
)

// invoker is an actor as its mailbox sees it.
type invoker struct {
	mu   sync.Mutex
	seen []any
}

func (i *invoker) InvokeSystemMessage(msg any) { i.InvokeUserMessage(msg) }
func (i *invoker) InvokeUserMessage(msg any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen = append(i.seen, msg)
}
func (*invoker) EscalateFailure(any, any) {}

// The engine makes a name known before the mailbox behind it works. Whoever
// posts in between must neither fall nor overtake Started.
func TestPostWhileSpawning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &System{cfg: Config{Now: time.Now}, log: slog.New(slog.DiscardHandler)}
		m, actorSide := newMailbox(s, &record{}), &invoker{}
		var senders sync.WaitGroup
		senders.Go(func() { m.PostUserMessage(&tick{}) })
		senders.Go(func() { m.PostSystemMessage(&actor.Stop{}) })
		synctest.Wait()
		m.RegisterHandlers(actorSide, actor.NewDefaultDispatcher(300))
		synctest.Wait()
		m.PostSystemMessage(&actor.Started{})
		m.Start()
		senders.Wait()
		synctest.Wait()
		require.Len(t, actorSide.seen, 3)
		require.IsType(t, &actor.Started{}, actorSide.seen[0])
	})
}
