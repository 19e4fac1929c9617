// Tests of snapshots: round trip, versions, bit flips, bounds at the maximum.

package fsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fullest is a state at every bound at once.
func fullest(t *testing.T) *State {
	t.Helper()
	wide := func(n uint64) Member {
		m := learner(n)
		m.Name, m.Build = strings.Repeat("n", MaxName), strings.Repeat("b", MaxBuild)
		m.Endpoint, m.Agents = longestEndpoint(), longestEndpoint()
		m.Protocol = VersionRange{Min: 1 << 31, Max: 1<<32 - 1}
		return m
	}
	s := NewState()
	founder := wide(1)
	founder.Role = Voter
	l := &lab{t: t, s: s, term: 1 << 62}
	l.must(InitCluster{ClusterID: clusterID(1), Name: strings.Repeat("c", MaxName), Founder: founder})
	// Counters near their end have the longest encoding.
	s.body.Epoch, s.body.Config.Version, s.body.Generation = 1<<62, 1<<62, 1<<62
	l.elect(1)
	for n := uint64(2); n <= MaxMembers; n++ {
		l.must(AddLearner{ExpectedConfig: l.config(), Member: wide(n)})
	}
	for _, r := range Roles() {
		for range 2 {
			g := l.assign(r, 1)
			if len(l.s.View().Releases) < int(r) {
				l.must(ReleaseRole{Role: r, ExpectedEpoch: g.Epoch, Node: node(1), Incarnation: inc(1),
					Code: strings.Repeat("c", MaxCode), Reason: strings.Repeat("r", MaxReason)})
			}
		}
	}
	for _, scope := range Scopes() {
		l.must(StartExclusiveOperation{Scope: scope, Owner: node(1), Incarnation: inc(1)})
	}
	for n := uint64(0); n < MaxRemoved; n++ {
		s.body.Removed = append(s.body.Removed, node(1_000_000+n))
	}
	for len(s.body.Recent) < MaxRecent {
		l.must(SetMaintenance{ExpectedEpoch: s.body.MaintenanceEpoch, State: Maintenance(1 + len(s.body.Recent)%5)})
	}
	return s
}

func TestStateBoundAtMaximum(t *testing.T) {
	s := fullest(t)
	require.NoError(t, s.body.checkInvariants())
	require.Len(t, s.body.Config.Members, MaxMembers)
	require.Len(t, s.body.Removed, MaxRemoved)
	require.Len(t, s.body.Recent, MaxRecent)
	require.Len(t, s.body.Roles, 4)
	require.Len(t, s.body.Releases, 4)
	require.Len(t, s.body.Exclusive, 5)
	size := len(encodeBody(s.body))
	t.Logf("state at its maximum: %d bytes of %d", size, MaxState)
	require.Less(t, size, MaxState)

	snap, err := s.EncodeSnapshot()
	require.NoError(t, err)
	again, err := DecodeSnapshot(snap)
	require.NoError(t, err)
	require.Equal(t, s.Hash(), again.Hash())

	// Nothing that would grow it further is accepted.
	l := &lab{t: t, s: s, term: 1 << 62, index: 1 << 40, req: 1 << 40}
	l.refuse(RejectBound, AddLearner{ExpectedConfig: l.config(), Member: learner(999)})
	l.refuse(RejectBound, RemoveMember{ExpectedConfig: l.config(), Node: node(2), Force: true})
	require.Len(t, encodeBody(s.body), size)
}

func TestSnapshotVersioned(t *testing.T) {
	snap, err := fleet(t).s.EncodeSnapshot()
	require.NoError(t, err)
	require.Less(t, len(snap), 4096, "compact")
	require.Equal(t, snapshotMagic, string(snap[:4]))

	for name, change := range map[string]func(v []byte){
		"format": func(v []byte) { v[4]++ },
		"schema": func(v []byte) { binary.BigEndian.PutUint32(v[5:], SchemaVersion+1) },
	} {
		t.Run(name, func(t *testing.T) {
			other := bytes.Clone(snap)
			change(other)
			sum := checksum(other[:snapshotVersions], other[snapshotHeader:])
			copy(other[snapshotVersions:], sum[:])
			_, err := DecodeSnapshot(other)
			require.ErrorIs(t, err, ErrIncompatible)
		})
	}
}

func TestSchemaVersionStored(t *testing.T) {
	s := fleet(t).s
	require.Equal(t, SchemaVersion, s.body.Schema)
	s.body.Schema++
	snap, err := s.EncodeSnapshot()
	require.NoError(t, err)
	_, err = DecodeSnapshot(snap)
	require.ErrorIs(t, err, ErrIncompatible)
}

func TestSnapshotBitFlip(t *testing.T) {
	l := fleet(t)
	l.assign(SchedulerLeader, 2)
	snap, err := l.s.EncodeSnapshot()
	require.NoError(t, err)
	for i := range snap {
		for bit := range 8 {
			snap[i] ^= 1 << bit
			_, err := DecodeSnapshot(snap)
			require.Error(t, err, "byte %d bit %d", i, bit)
			snap[i] ^= 1 << bit
		}
	}
	for n := range len(snap) {
		_, err := DecodeSnapshot(snap[:n])
		require.Error(t, err, "cut to %d bytes", n)
	}
	_, err = DecodeSnapshot(append(bytes.Clone(snap), 0))
	require.ErrorIs(t, err, ErrIntegrity)
	_, err = DecodeSnapshot(snap)
	require.NoError(t, err, "unharmed")
}

func TestSnapshotSizeLimit(t *testing.T) {
	_, err := seal(SchemaVersion, make([]byte, MaxSnapshot-snapshotHeader+1))
	require.ErrorIs(t, err, ErrTooLarge)
	sealed, err := seal(SchemaVersion, make([]byte, MaxSnapshot-snapshotHeader))
	require.NoError(t, err)
	require.Len(t, sealed, MaxSnapshot)
	_, err = DecodeSnapshot(append(sealed, 0))
	require.ErrorIs(t, err, ErrTooLarge)
}

// TestSnapshotChecksInvariants: a checksum is not enough, the content must be a
// state that commands can produce.
func TestSnapshotChecksInvariants(t *testing.T) {
	for name, spoil := range map[string]func(b *body){
		"no cluster id":             func(b *body) { b.ClusterID = ClusterID{} },
		"generation 0":              func(b *body) { b.Generation = 0 },
		"no maintenance":            func(b *body) { b.Maintenance = 0 },
		"unknown maintenance":       func(b *body) { b.Maintenance = 6 },
		"cluster name":              func(b *body) { b.ClusterName = "\x00" },
		"maintenance above counter": func(b *body) { b.MaintenanceEpoch = b.Epoch + 1 },
		"leader above counter":      func(b *body) { b.Leader.Epoch.Epoch = b.Epoch + 1 },
		"no members":                func(b *body) { b.Config.Members = []Member{} },
		"config version 0":          func(b *body) { b.Config.Version = 0 },
		"members unsorted":          func(b *body) { m := b.Config.Members; m[0], m[1] = m[1], m[0] },
		"member twice":              func(b *body) { b.Config.Members = append(b.Config.Members, b.Config.Members[2]) },
		"member role":               func(b *body) { b.Config.Members[0].Role = 0 },
		"member state":              func(b *body) { b.Config.Members[0].State = Removed },
		"member endpoint":           func(b *body) { b.Config.Members[0].Endpoint = "nowhere" },
		"member name":               func(b *body) { b.Config.Members[0].Name = strings.Repeat("x", MaxName+1) },
		"no voter":                  func(b *body) { dropVoters(b) },
		"member and tombstone":      func(b *body) { b.Removed = []NodeID{node(2)} },
		"tombstones unsorted":       func(b *body) { b.Removed = []NodeID{node(9), node(8)} },
		"role unknown":              func(b *body) { b.Roles[0].Role = 5 },
		"role twice":                func(b *body) { b.Roles = append(b.Roles, b.Roles[0]) },
		"role epoch 0":              func(b *body) { b.Roles[0].Epoch = 0 },
		"role above counter":        func(b *body) { b.Roles[0].Epoch = b.Epoch + 1 },
		"role of a stranger":        func(b *body) { b.Roles[0].Owner = node(9) },
		"role of an old process":    func(b *body) { b.Roles[0].Incarnation = inc(9) },
		"vacant with incarnation":   func(b *body) { b.Roles[0].Owner = NodeID{} },
		"release above grant":       func(b *body) { b.Releases[0].Epoch = b.Epoch + 1 },
		"release reason":            func(b *body) { b.Releases[0].Reason = "\n" },
		"scope unknown":             func(b *body) { b.Exclusive[0].Scope = 6 },
		"scope of a stranger":       func(b *body) { b.Exclusive[0].Owner = node(9) },
		"scope of no process":       func(b *body) { b.Exclusive[0].Incarnation = IncarnationID{} },
		"scope epoch":               func(b *body) { b.Exclusive[0].Epoch = 0 },
		"request twice":             func(b *body) { b.Recent = append(b.Recent, b.Recent[0]) },
		"request zero":              func(b *body) { b.Recent[0].ID = RequestID{} },
		"request from the future":   func(b *body) { b.Recent[0].Result.Epoch = b.Epoch + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			l := fleet(t)
			g := l.assign(SchedulerLeader, 2)
			l.must(ReleaseRole{Role: SchedulerLeader, ExpectedEpoch: g.Epoch, Node: node(2), Incarnation: inc(2), Code: "FY-ROLE-099", Reason: "x"})
			l.assign(SchedulerLeader, 2)
			l.must(StartExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(1), Incarnation: inc(1)})
			spoil(&l.s.body)
			snap, err := l.s.EncodeSnapshot()
			require.NoError(t, err)
			_, err = DecodeSnapshot(snap)
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
}

func dropVoters(b *body) {
	for i := range b.Config.Members {
		b.Config.Members[i].Role = Learner
	}
}

func TestBlankSnapshot(t *testing.T) {
	snap, err := NewState().EncodeSnapshot()
	require.NoError(t, err)
	s, err := DecodeSnapshot(snap)
	require.NoError(t, err)
	require.Equal(t, NewState().Hash(), s.Hash())
	require.False(t, s.View().Initialised())
}

// TestReadsPreviousSchema: the file that an earlier build of this schema wrote
// stays readable and means the same state.
func TestReadsPreviousSchema(t *testing.T) {
	l := fleet(t)
	l.assign(SchedulerLeader, 2)
	snap, err := l.s.EncodeSnapshot()
	require.NoError(t, err)
	name := fmt.Sprintf("snapshot.schema%d.golden", SchemaVersion)
	golden(t, name, string(snap))
	file, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	s, err := DecodeSnapshot(file)
	require.NoError(t, err)
	require.Equal(t, l.s.View(), s.View())
}

func TestEqualStatesHaveEqualBytes(t *testing.T) {
	s := fleet(t).s
	c := s.Clone()
	c.body.Removed, c.body.Exclusive, c.body.Roles = nil, nil, nil
	require.Equal(t, s.Hash(), c.Hash())
}
