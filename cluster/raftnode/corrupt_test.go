// One node's files change while it is down: it refuses to start and says so, or it comes back and is equal to the others; what
// was damaged is never voted, led or answered with.

package raftnode

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/disk"
)

// fileClasses are the patterns below a node's directory.
var fileClasses = map[string]string{
	"log store":       "raft/raft.db",
	"snapshot meta":   "raft/snapshots/*/meta.json",
	"snapshot state":  "raft/snapshots/*/state.bin",
	"snapshot seal":   "raft/snapshots/*/seal",
	"marker":          "identity/raft-marker.json",
	"high-water mark": "identity/raft-high-water.json",
	"tail mark":       "identity/raft-tail",
}

// verdict is how a start over damaged files ended.
type verdict int

const (
	refused verdict = iota
	same            // everything that was promised is there, and the state is the one from before
	equal           // that, and the node ran until it was equal to the others
)

// past is what a node had promised before its files changed.
type past struct {
	terms    map[uint64]uint64 // of each entry
	term     uint64
	voteTerm uint64
	vote     string
	state    [32]byte // hash of what the node shows at its next start
}

func pastOf(t *testing.T, m *member) past {
	t.Helper()
	cfg := m.config()
	require.NoError(t, cfg.setDefaults())
	st, err := openStore(cfg)
	require.NoError(t, err)
	p := past{terms: map[uint64]uint64{}, term: st.found.term, state: st.found.state.Hash()}
	for i := st.found.first; i <= st.found.last; i++ {
		var e raft.Log
		require.NoError(t, st.log.GetLog(i, &e))
		p.terms[i] = e.Term
	}
	p.voteTerm, _ = st.stable.GetUint64([]byte(keyLastVoteTerm))
	vote, _ := st.stable.Get([]byte(keyLastVoteCand))
	p.vote = string(vote)
	require.NoError(t, st.close())
	return p
}

// forgotten reports what a start over damaged files no longer knows or shows.
// Entries that the snapshot covers may be gone.
func (p past) forgotten(st *store) error {
	if st.found.term != p.term {
		return fmt.Errorf("term %d, not %d", st.found.term, p.term)
	}
	term, _ := st.stable.GetUint64([]byte(keyLastVoteTerm))
	if vote, _ := st.stable.Get([]byte(keyLastVoteCand)); term != p.voteTerm || string(vote) != p.vote {
		return fmt.Errorf("voted in term %d for %q, not in %d for %q", term, vote, p.voteTerm, p.vote)
	}
	if st.found.state.Hash() != p.state {
		return errors.New("another state")
	}
	covered := uint64(0)
	if st.found.snapshot != nil {
		covered = st.found.snapshot.Index
	}
	for i, term := range p.terms {
		var e raft.Log
		switch err := st.log.GetLog(i, &e); {
		case errors.Is(err, raft.ErrLogNotFound) && i <= covered:
		case err != nil:
			return fmt.Errorf("entry %d: %w", i, err)
		case e.Term != term:
			return fmt.Errorf("entry %d is of term %d, not %d", i, e.Term, term)
		}
	}
	return nil
}

// damageOne opens m's store over files that damage has changed. Refused or not, they
// are put right again; accepted and with rejoin, the node runs until it is equal to the
// others. was is what m had promised; without terms it is read first.
func (f *fleet) damageOne(l *ledger, m *member, was *past, rejoin bool, pattern string, damage func(b []byte) ([]byte, string)) verdict {
	f.t.Helper()
	if was.terms == nil {
		*was = pastOf(f.t, m)
	}
	paths, err := filepath.Glob(filepath.Join(m.dir, pattern))
	require.NoError(f.t, err)
	require.NotEmpty(f.t, paths, pattern)
	path := paths[len(paths)-1] // of several snapshots the newest
	whole, err := os.ReadFile(path)
	require.NoError(f.t, err)
	bad, how := damage(whole)
	require.NotEqual(f.t, whole, bad)
	require.NoError(f.t, os.WriteFile(path, bad, 0o600))
	what := fmt.Sprintf("%s: %s", filepath.Base(path), how)

	before := files(f.t, m.dir)
	cfg := m.config()
	require.NoError(f.t, cfg.setDefaults())
	st, err := openStore(cfg)
	if err == nil {
		require.NoError(f.t, was.forgotten(st), what)
		require.NoError(f.t, st.close())
		if !rejoin {
			require.NoError(f.t, os.WriteFile(path, whole, 0o600))
			return same
		}
		m.start(l.watch)
		f.eventually(func() bool {
			_, leads := m.node.Leadership()
			return leads || !m.node.View().KnownLeader.IsZero()
		})
		leader := f.leader().node
		f.propose(leader, fsm.SetMaintenance{ExpectedEpoch: leader.View().MaintenanceEpoch, State: fsm.ReadOnly})
		l.equal(f)
		require.NoError(f.t, m.node.Failure(), what)
		m.close()
		*was = past{}
		// A snapshot never changes: what stands in for a damaged one leaves it as it is.
		if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, bad) {
			require.NoError(f.t, os.WriteFile(path, whole, 0o600))
		}
		return equal
	}
	var typed *cluster.Error
	require.ErrorAs(f.t, err, &typed, what)
	require.Equal(f.t, cluster.StorageFailure, typed.Kind, "%s: %v", what, err)
	require.NotEmpty(f.t, typed.Code, what)
	require.NotEmpty(f.t, typed.Hint, what)
	require.Equal(f.t, before, files(f.t, m.dir), "%s: the files were changed", what)
	require.NoError(f.t, os.WriteFile(path, whole, 0o600))
	return refused
}

// damaged runs so many flips and truncations of each given class of file on one node of three. Of rejoins accepted damages
// there is one after which the node runs again, which takes a hundred times as long as to read its files.
func damaged(t *testing.T, seed uint64, flips, cuts, rejoins int, classes ...string) {
	t.Helper()
	withDisks(t, func(t *testing.T, f *fleet, _ map[fsm.NodeID]*badDisk, l *ledger) {
		leader := f.leader()
		m := f.others(leader)[0]
		fill(t, leader, 16, 16)
		l.equal(f)
		for range 2 {
			require.NoError(t, m.node.raft.Snapshot().Error())
			fill(t, leader, 4, 5)
			l.equal(f)
		}
		m.close()

		rng, was := rand.New(rand.NewPCG(seed, 0)), past{}
		for _, class := range classes {
			var v [equal + 1]int
			for n := range flips + cuts {
				damage := func(b []byte) ([]byte, string) { return disk.Flip(b, rng) }
				if n >= flips {
					damage = func(b []byte) ([]byte, string) { return disk.Shorten(b, n-flips, cuts) }
				}
				rejoin := (v[same]+v[equal])%rejoins == 0
				v[f.damageOne(l, m, &was, rejoin, fileClasses[class], damage)]++
			}
			t.Logf("%-15s %d refused, %d with everything promised, of those %d equal to the others again", class, v[refused], v[same]+v[equal], v[equal])
		}
		m.start(l.watch)
		l.equal(f)
		require.Less(t, m.node.View().RaftTerm, uint64(10), "nobody stood against the leader")
	})
}

func TestDamagedFiles(t *testing.T) {
	damaged(t, 3, 2, 1, 5, slices.Sorted(maps.Keys(fileClasses))...)
}
