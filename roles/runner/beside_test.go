// What an agent says of another agent's lease, in one transaction with what the owner says of it.

package runner_test

import (
	"hash/fnv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// TestForeignLeaseBesideItsOwners: whatever another agent says of a lease, and
// whether it comes before the owner's message or after it, the owner is answered as
// if it were alone, and the other one as if the lease were nobody's.
func TestForeignLeaseBesideItsOwners(t *testing.T) {
	p := newPlane(t)
	d := p.daemon("d1")
	owner, other := p.speak("owner", "d1"), p.speak(neighbour("owner"), "d1")
	for name, kind := range map[string]struct {
		message func(lease string) runner.Message
		taken   func(s *spoken, lease string) bool // the answer
	}{
		"acceptance": {
			func(l string) runner.Message {
				return runner.Message{Answer: &runner.Answer{Lease: l, Verdict: runner.Accepted}}
			},
			func(s *spoken, _ string) bool {
				return await(s, func(m runner.Message) *runner.Start { return m.Start }).Granted
			},
		},
		"heartbeat": {
			func(l string) runner.Message {
				return runner.Message{Beat: &runner.Beat{Seq: 1, Leases: []runner.Progress{{Lease: l, Bytes: 5}}}}
			},
			func(s *spoken, l string) bool {
				alive := await(s, func(m runner.Message) *runner.Pulse { return m.Pulse }).Alive
				return len(alive) == 1 && alive[0] == l
			},
		},
		"completion": {
			func(l string) runner.Message {
				return runner.Message{Complete: &runner.Complete{Lease: l, Outcome: runner.Succeeded}}
			},
			completed,
		},
		"release": {
			func(l string) runner.Message {
				return runner.Message{Release: &runner.Release{Lease: l, Reason: "because"}}
			},
			completed,
		},
	} {
		for order, first := range map[string]*spoken{"owner first": owner, "other first": other} {
			t.Run(name+", "+order, func(t *testing.T) {
				second := owner
				if first == owner {
					second = other
				}
				lease, held := p.lease("owner", nil), p.lease("owner", nil)
				tx, err := p.super.Begin(t.Context())
				require.NoError(t, err)
				_, err = tx.Exec(t.Context(), `SELECT FROM forge.leases WHERE id = $1::text::uuid FOR UPDATE`, held)
				require.NoError(t, err)
				owner.say(runner.Message{Release: &runner.Release{Lease: held}})
				p.waits()
				first.say(kind.message(lease))
				require.Eventually(t, func() bool { return d.Queued() == 1 }, soon, time.Millisecond)
				second.say(kind.message(lease))
				require.Eventually(t, func() bool { return d.Queued() == 2 }, soon, time.Millisecond)
				require.NoError(t, tx.Commit(t.Context()))
				require.True(t, completed(owner, held))
				require.True(t, kind.taken(owner, lease), "the owner's")
				require.False(t, kind.taken(other, lease), "the other's")
			})
		}
	}
}

func completed(s *spoken, lease string) bool {
	return await(s, func(m runner.Message) *runner.Completed {
		if m.Completed == nil || m.Completed.Lease != lease {
			return nil
		}
		return m.Completed
	}).Accepted
}

// waits returns once some session waits for a lock.
func (p *plane) waits() {
	p.Helper()
	require.Eventually(p, func() bool {
		return one[bool](p, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)`)
	}, soon, time.Millisecond)
}

// neighbour is an agent whose messages the same worker of a desk handles.
func neighbour(of string) string {
	worker := func(agent string) uint32 {
		h := fnv.New32a()
		_, _ = h.Write([]byte(agent)) // never fails
		return h.Sum32() % 2
	}
	other := "a"
	for worker(other) != worker(of) {
		other += "a"
	}
	return other
}
