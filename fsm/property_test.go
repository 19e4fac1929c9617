// Property tests: random command sequences against determinism, monotonic counters, invariants and a reference model.

package fsm

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// aim draws the current value mostly, else one that is wrong.
func aim[T ~uint64](t *rapid.T, current T) T {
	if rapid.IntRange(0, 5).Draw(t, "aim") > 0 {
		return current
	}
	return T(rapid.Uint64Range(0, uint64(current)+2).Draw(t, "miss"))
}

// drawCommand draws a command that is plausible in the state of v: most are
// accepted, and every precondition is missed now and then.
func drawCommand(t *rapid.T, v View, term uint64) Command {
	n := rapid.Uint64Range(1, 6).Draw(t, "node")
	m, known := v.Member(node(n))
	if !known {
		m = learner(n)
	}
	incarnation := IncarnationID(number[IncarnationID](aim(t, uint64(m.Incarnation[15])|uint64(m.Incarnation[14])<<8)))
	if incarnation.IsZero() {
		incarnation = inc(1)
	}
	role := Role(rapid.IntRange(1, 4).Draw(t, "role"))
	scope := Scope(rapid.IntRange(1, 5).Draw(t, "scope"))
	lead := LeaderEpoch{Term: v.LeaderEpoch.Term, Epoch: aim(t, v.LeaderEpoch.Epoch)}
	switch CommandKind(rapid.IntRange(1, 12).Draw(t, "kind")) {
	case KindInitCluster:
		return InitCluster{ClusterID: clusterID(1), Name: "yard", Founder: member(1)}
	case KindAddLearner:
		add := learner(n)
		add.Role = rapid.SampledFrom([]MemberRole{Learner, Learner, Learner, Observer}).Draw(t, "as")
		return AddLearner{ExpectedConfig: aim(t, v.Config), Member: add}
	case KindPromoteVoter:
		return PromoteVoter{ExpectedConfig: aim(t, v.Config), Node: node(n)}
	case KindRemoveMember:
		return RemoveMember{ExpectedConfig: aim(t, v.Config), Node: node(n), Force: rapid.IntRange(0, 9).Draw(t, "force") == 0}
	case KindUpdateMember:
		up := UpdateMember{Node: node(n), ExpectedIncarnation: incarnation, State: rapid.SampledFrom([]MemberState{0, Active, Active, Draining, Leaving}).Draw(t, "state")}
		if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
			up.Incarnation = inc(rapid.Uint64Range(1, 500).Draw(t, "incarnation"))
		}
		return up
	case KindAssignRole:
		return AssignRole{Leader: lead, Role: role, ExpectedEpoch: aim(t, v.Role(role).Epoch), Owner: node(n), Incarnation: incarnation}
	case KindBumpEpoch:
		if rapid.Bool().Draw(t, "leadership") {
			return BumpEpoch{Term: aim(t, term), ExpectedEpoch: aim(t, v.LeaderEpoch.Epoch), Node: node(n), Incarnation: incarnation}
		}
		g := v.Role(role)
		if g.Vacant() {
			g.Owner, g.Incarnation = node(n), incarnation
		}
		return BumpEpoch{Role: role, ExpectedEpoch: aim(t, g.Epoch), Node: g.Owner, Incarnation: g.Incarnation}
	case KindReleaseRole:
		g := v.Role(role)
		if g.Vacant() {
			g.Owner, g.Incarnation = node(n), incarnation
		}
		by := rapid.SampledFrom([]LeaderEpoch{{}, lead}).Draw(t, "by")
		return ReleaseRole{Leader: by, Role: role, ExpectedEpoch: aim(t, g.Epoch), Node: g.Owner, Incarnation: g.Incarnation, Code: "FY-ROLE-099", Reason: "drawn"}
	case KindSetMaintenance:
		return SetMaintenance{ExpectedEpoch: aim(t, v.MaintenanceEpoch), State: Maintenance(rapid.IntRange(1, 5).Draw(t, "maintenance"))}
	case KindStartExclusive:
		start := StartExclusiveOperation{Scope: scope, Owner: node(n), Incarnation: incarnation}
		if x, held := v.Held(scope); held && rapid.Bool().Draw(t, "take over") {
			start.Abandoned = aim(t, x.Epoch)
		}
		return start
	case KindCompleteExclusive:
		done := CompleteExclusiveOperation{Scope: scope, Owner: node(n), Incarnation: incarnation, Epoch: aim(t, v.Epoch)}
		for _, x := range v.Exclusive {
			if x.Scope == scope {
				done = CompleteExclusiveOperation{Scope: scope, Owner: x.Owner, Incarnation: x.Incarnation, Epoch: aim(t, x.Epoch)}
			}
		}
		return done
	}
	return ActivateFeature{Expected: v.Feature, Feature: v.Feature + 1}
}

// drawLength is how many commands a sequence has.
func drawLength(t *rapid.T) int { return rapid.IntRange(1, 60).Draw(t, "commands") }

// run applies random commands to s, calling step around each.
func run(t *rapid.T, s *State, step func(e entry, p Proposal, before View, res Result, err error)) {
	runFor(t, s, drawLength(t), step)
}

func runFor(t *rapid.T, s *State, commands int, step func(e entry, p Proposal, before View, res Result, err error)) {
	e, req := s.at, uint64(0)
	for range commands {
		e.Index++
		if rapid.IntRange(0, 9).Draw(t, "election") == 0 {
			e.Term++
		}
		req++
		id := req
		if rapid.IntRange(0, 9).Draw(t, "retry") == 0 {
			id = rapid.Uint64Range(1, req).Draw(t, "request")
		}
		before := s.View()
		p := Proposal{Request: number[RequestID](id), Command: drawCommand(t, before, e.Term)}
		res, err := s.Apply(e.Index, e.Term, p)
		step(e, p, before, res, err)
	}
}

// founded starts most sequences where the interesting part begins.
func founded(t *rapid.T) *State {
	l := newLab(t)
	if rapid.IntRange(0, 9).Draw(t, "blank") > 0 {
		l.found().voter(2).voter(3)
		l.elect(1)
	}
	l.s.body.Recent = l.s.body.Recent[:0] // request ids start anew in run
	return l.s
}

func TestApplyDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := founded(t)
		twin := s.Clone()
		run(t, s, func(e entry, p Proposal, _ View, res Result, err error) {
			// The twin applies what went over the wire.
			data, encErr := EncodeProposal(p)
			require.NoError(t, encErr)
			decoded, decErr := DecodeProposal(data)
			require.NoError(t, decErr)
			res2, err2 := twin.Apply(e.Index, e.Term, decoded)
			require.Equal(t, res, res2)
			require.Equal(t, err, err2)
			require.Equal(t, s.Hash(), twin.Hash())
			require.Equal(t, s.View(), twin.View())
		})
	})
}

func TestRejectLeavesState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := founded(t)
		last := encodeBody(s.body)
		run(t, s, func(e entry, p Proposal, before View, res Result, err error) {
			now := encodeBody(s.body)
			if err != nil {
				var rej *Rejection
				require.True(t, errors.As(err, &rej))
				require.Contains(t, rejectNames, rej.Code)
				require.True(t, bytes.Equal(last, now), "%s changed the state though it was rejected", p.Command.Kind())
			}
			if res.Replay {
				require.True(t, bytes.Equal(last, now))
			}
			require.Equal(t, e.Index, s.View().Index)
			last = now
		})
	})
}

func TestEpochMonotonic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := founded(t)
		taken := map[Epoch]bool{}
		run(t, s, func(_ entry, p Proposal, before View, res Result, err error) {
			after := s.View()
			require.LessOrEqual(t, before.Epoch, after.Epoch)
			require.LessOrEqual(t, after.Epoch, before.Epoch+1, "one command takes at most one epoch")
			if after.Epoch > before.Epoch {
				require.NoError(t, err)
				require.Equal(t, after.Epoch, res.Epoch)
				require.False(t, taken[res.Epoch], "epoch %d was handed out twice", res.Epoch)
				taken[res.Epoch] = true
			}
			require.GreaterOrEqual(t, after.LeaderEpoch.Epoch, before.LeaderEpoch.Epoch)
			require.GreaterOrEqual(t, after.LeaderEpoch.Term, before.LeaderEpoch.Term)
			require.GreaterOrEqual(t, after.MaintenanceEpoch, before.MaintenanceEpoch)
			require.GreaterOrEqual(t, after.Feature, before.Feature)
			for _, g := range after.Roles {
				old := before.Role(g.Role)
				require.GreaterOrEqual(t, g.Epoch, old.Epoch)
				if !g.Vacant() && (g.Owner != old.Owner || g.Incarnation != old.Incarnation) {
					require.Greater(t, g.Epoch, old.Epoch, "a new owner has a new epoch")
				}
			}
		})
	})
}

func TestConfigVersionMonotonic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := founded(t)
		run(t, s, func(_ entry, _ Proposal, before View, _ Result, _ error) {
			after := s.View()
			want := before.Config
			if len(before.Members) != len(after.Members) {
				want++
			} else {
				for i := range after.Members {
					if after.Members[i] != before.Members[i] {
						want++
						break
					}
				}
			}
			require.Equal(t, want, after.Config, "the version rises by one exactly when the members change")
		})
	})
}

func TestInvariantsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := founded(t)
		run(t, s, func(_ entry, p Proposal, _ View, _ Result, _ error) {
			require.NoError(t, s.body.checkInvariants(), "after %s", p.Command.Kind())
		})
	})
}

// TestSnapshotAtAnyCut: a replica restored from a snapshot at a random point
// and fed the rest ends in the same state, with the same answers.
func TestSnapshotAtAnyCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := founded(t)
		var restored *State
		run(t, s, func(e entry, p Proposal, _ View, res Result, err error) {
			if restored != nil {
				res2, err2 := restored.Apply(e.Index, e.Term, p)
				require.Equal(t, res, res2)
				require.Equal(t, err, err2)
			}
			if restored == nil || rapid.IntRange(0, 9).Draw(t, "cut") == 0 {
				snap, encErr := s.EncodeSnapshot()
				require.NoError(t, encErr)
				var decErr error
				restored, decErr = DecodeSnapshot(snap)
				require.NoError(t, decErr)
			}
			require.Equal(t, s.Hash(), restored.Hash())
			require.Equal(t, s.View(), restored.View())
		})
	})
}

// model is membership and epochs written as naively as possible.
type model struct {
	members map[NodeID]Member
	gone    map[NodeID]bool
	version ConfigVersion
	epoch   Epoch
}

// expect says whether a membership command must be accepted, and applies it.
func (m *model) expect(c Command) (accepted, membership bool) {
	switch c := c.(type) {
	case AddLearner:
		_, in := m.members[c.Member.Node]
		if in || m.gone[c.Member.Node] || c.ExpectedConfig != m.version || c.Member.Protocol.Max < 3 {
			return false, true
		}
		add := c.Member
		add.State = Joining
		m.members[add.Node] = add
	case PromoteVoter:
		x, in := m.members[c.Node]
		if !in || x.Role != Learner || x.State != Active || c.ExpectedConfig != m.version {
			return false, true
		}
		x.Role = Voter
		m.members[c.Node] = x
	case RemoveMember:
		x, in := m.members[c.Node]
		voters := 0
		for _, y := range m.members {
			if y.Role == Voter && y.Node != c.Node {
				voters++
			}
		}
		if !in || c.ExpectedConfig != m.version || voters == 0 || x.State != Leaving && !c.Force {
			return false, true
		}
		delete(m.members, c.Node)
		m.gone[c.Node] = true
	case UpdateMember:
		x, in := m.members[c.Node]
		if !in || c.ExpectedIncarnation != x.Incarnation {
			return false, true
		}
		legal := map[MemberState][]MemberState{Joining: {Active}, Active: {Draining}, Draining: {Active, Leaving}}
		ok := c.State == 0 || c.State == x.State
		for _, to := range legal[x.State] {
			ok = ok || to == c.State
		}
		if !ok {
			return false, true
		}
		old := x
		if c.State != 0 {
			x.State = c.State
		}
		if !c.Incarnation.IsZero() {
			x.Incarnation = c.Incarnation
		}
		if x == old {
			return true, true
		}
		m.members[c.Node] = x
	default:
		return false, false
	}
	m.version++
	return true, true
}

func TestModelMembershipEpoch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLab(t).found().voter(2).voter(3)
		l.s.body.Recent = l.s.body.Recent[:0]
		m := &model{members: map[NodeID]Member{}, gone: map[NodeID]bool{}, version: l.config()}
		for _, x := range l.s.View().Members {
			m.members[x.Node] = x
		}
		accepted, refused := 0, 0
		run(t, l.s, func(_ entry, p Proposal, before View, res Result, err error) {
			if res.Replay {
				return
			}
			want, membership := m.expect(p.Command)
			if membership {
				require.Equal(t, want, err == nil, "%s: %v", p.Command.Kind(), err)
			}
			if err == nil {
				accepted++
				switch p.Command.(type) {
				case AssignRole, BumpEpoch, SetMaintenance, StartExclusiveOperation:
					if !res.NoOp {
						m.epoch++
					}
				}
			} else {
				refused++
			}
			after := l.s.View()
			require.Equal(t, m.epoch, after.Epoch)
			require.Equal(t, m.version, after.Config)
			require.Len(t, after.Members, len(m.members))
			for _, x := range after.Members {
				require.Equal(t, m.members[x.Node], x)
			}
			require.Len(t, after.RemovedIDs, len(m.gone))
			for _, g := range after.Roles {
				owner, in := m.members[g.Owner]
				require.True(t, g.Vacant() || in && owner.Incarnation == g.Incarnation, "%s is owned by a process that is no member", g.Role)
			}
			for _, x := range before.Exclusive {
				// Held until its owner completed it, or abandoned first and then taken over.
				now, held := after.Held(x.Scope)
				if held && now == x {
					continue
				}
				require.NoError(t, err)
				if held {
					require.True(t, before.Abandoned(x))
					require.Equal(t, x.Epoch, p.Command.(StartExclusiveOperation).Abandoned)
				} else {
					require.False(t, before.Abandoned(x))
					require.IsType(t, CompleteExclusiveOperation{}, p.Command)
				}
			}
		})
		t.Logf("%d accepted, %d refused", accepted, refused)
	})
}
