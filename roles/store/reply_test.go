// A connection that is cut around a commit: the outcome is unknown, whichever side of the commit the cut was on.

package store

import (
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
	"github.com/forgeyard/forgeyard/testkit/postgres"
)

// cutter forwards to the database until it is armed; then it cuts the next
// exchange, once: cutRequest drops what the client sends, cutReply lets the
// server do its work and drops its answer.
type cutter struct {
	mode  atomic.Int32
	cuts  atomic.Int32
	slow  atomic.Int64 // nanoseconds before a new connection is served
	conns atomic.Int32 // accepted
	addr  *net.TCPAddr
}

const (
	cutNothing int32 = iota
	cutRequest
	cutReply
)

func newCutter(t *testing.T, db *pgtest.Database) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &cutter{addr: l.Addr().(*net.TCPAddr)}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.conns.Add(1)
			conns.Go(func() { p.serve(client, filepath.Join(db.Host, ".s.PGSQL.5432")) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		conns.Wait()
	})
	return p
}

func (p *cutter) serve(client net.Conn, socket string) {
	defer client.Close()
	<-time.After(time.Duration(p.slow.Load()))
	server, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(server, client, cutRequest); server.Close() })
	both.Go(func() { p.pump(client, server, cutReply); client.Close() })
	both.Wait()
}

func (p *cutter) pump(to io.Writer, from io.Reader, mode int32) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && p.mode.CompareAndSwap(mode, cutNothing) {
			p.cuts.Add(1)
			return
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (p *cutter) dsn(db *pgtest.Database, user string) string {
	return postgres.DSN("127.0.0.1", p.addr.Port, user, db.Name)
}

func TestConnectionCutAroundCommit(t *testing.T) {
	db := newDatabase(t)
	p := newCutter(t, db)
	s := open(t, db, func(c *Config) { c.App = p.dsn(db, "forgeyard_app"); c.FencedConns = 1 })
	h := newHolder(t)
	for epoch, mode := range map[int]int32{10: cutRequest, 20: cutReply} {
		g := h.fenced(t, s, nextEpoch(t, db, epoch))
		require.NoError(t, s.Fenced(t.Context(), g, insert("prepares the statements")))
		p.mode.Store(mode)
		note := map[int32]string{cutRequest: "request lost", cutReply: "reply lost"}[mode]
		err := s.Fenced(t.Context(), g, insert(note))
		require.Equal(t, Unknown, Classify(err), "%v", err)
		require.ErrorIs(t, err, ErrUnknown)
		require.True(t, cluster.OutcomeUnknown(err))
		require.False(t, Retryable(err))
		require.Equal(t, cluster.GuardRevoked, g.State(), "the epoch is spent")
		require.Equal(t, cutNothing, p.mode.Load(), "the cut was made")
	}
	require.EqualValues(t, 2, p.cuts.Load())
	// The same error hides both truths, which is why it must not be called "not applied".
	require.Zero(t, one[int](t, db, "SELECT count(*) FROM work WHERE note = 'request lost'"))
	require.Eventually(t, func() bool { return one[int](t, db, "SELECT count(*) FROM work WHERE note = 'reply lost'") == 1 }, waitBound, pollEvery)
}

// The raise is idempotent, so a lost reply is repaired by asking again.
func TestReplyOfTheRaiseLost(t *testing.T) {
	db := newDatabase(t)
	p := newCutter(t, db)
	s := open(t, db, func(c *Config) { c.Direct = p.dsn(db, "forgeyard_app"); c.ProbeInterval = probeNever })
	for epoch, mode := range map[int]int32{10: cutRequest, 20: cutReply} {
		h := newHolder(t)
		g := h.granted(t, nextEpoch(t, db, epoch))
		require.NoError(t, s.use(t.Context(), s.reserved, ping)) // the cut must meet the raise, not the connecting
		p.mode.Store(mode)
		before := p.cuts.Load()
		require.NoError(t, s.RaiseFence(t.Context(), g))
		require.Equal(t, before+1, p.cuts.Load(), "the cut was made")
		require.NoError(t, g.CheckGranted())
		require.EqualValues(t, g.Epoch(), one[int64](t, db, "SELECT epoch FROM coordination.fence WHERE owner = $1", g.Owner().String()))
	}
}
