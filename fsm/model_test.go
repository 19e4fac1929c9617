// The reference model: every rule of the command set written as one condition over maps, held against Apply.

package fsm

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// actor is a process of a node.
type actor struct {
	node NodeID
	inc  IncarnationID
}

// reference is coordination state without any order of checks, log or encoding.
type reference struct {
	view    View // scalars only
	members map[NodeID]Member
	gone    map[NodeID]bool
	epochs  map[Role]Epoch // of the last grant, also of a vacant role
	owners  map[Role]actor
	last    map[Role]Release
	held    map[Scope]ExclusiveLease
	answers map[RequestID]Result
}

// newReference begins where a state stands that has granted nothing yet.
func newReference(t require.TestingT, v View) *reference {
	r := &reference{
		view: v, members: map[NodeID]Member{}, gone: map[NodeID]bool{}, epochs: map[Role]Epoch{}, owners: map[Role]actor{},
		last: map[Role]Release{}, held: map[Scope]ExclusiveLease{}, answers: map[RequestID]Result{},
	}
	for _, m := range v.Members {
		r.members[m.Node] = m
	}
	require.Empty(t, v.Roles)
	return r
}

// judge says whether a command must be accepted, and does it then.
func (r *reference) judge(p Proposal, term uint64) (Result, bool) {
	if res, again := r.answers[p.Request]; again {
		res.Replay = true
		return res, true
	}
	if _, first := p.Command.(InitCluster); !first && r.view.ClusterID.IsZero() {
		return Result{}, false
	}
	before := r.view.Epoch
	res, ok := r.accept(p.Command, term)
	if !ok {
		return Result{}, false
	}
	if r.view.Epoch > before {
		res.Epoch = r.view.Epoch
	}
	res.Config = r.view.Config
	r.answers[p.Request] = res
	return res, true
}

func (r *reference) accept(c Command, term uint64) (Result, bool) {
	switch c := c.(type) {
	case InitCluster, AddLearner, PromoteVoter, RemoveMember, UpdateMember:
		return r.membership(c)
	case AssignRole:
		m := r.members[c.Owner]
		ok := r.leads(c.Leader) && r.epochs[c.Role] == c.ExpectedEpoch && r.is(c.Owner, c.Incarnation) && m.Role == Voter && m.State == Active
		if ok {
			r.epochs[c.Role], r.owners[c.Role] = r.next(), actor{c.Owner, c.Incarnation}
		}
		return Result{}, ok
	case BumpEpoch:
		if c.Role == 0 {
			return r.lead(c, term)
		}
		ok := r.owns(c.Role, c.Node, c.Incarnation) && r.epochs[c.Role] == c.ExpectedEpoch && c.ExpectedEpoch >= r.view.LeaderEpoch.Epoch
		if ok {
			r.epochs[c.Role] = r.next()
		}
		return Result{}, ok
	case ReleaseRole:
		byOwner := c.Leader == (LeaderEpoch{})
		ok := (byOwner || r.leads(c.Leader)) && r.owns(c.Role, c.Node, c.Incarnation) && r.epochs[c.Role] == c.ExpectedEpoch
		if ok {
			r.vacate(c.Role, c.Code, c.Reason)
		}
		return Result{Epoch: c.ExpectedEpoch}, ok
	case SetMaintenance:
		if c.ExpectedEpoch != r.view.MaintenanceEpoch || c.State == r.view.Maintenance {
			return Result{Epoch: r.view.MaintenanceEpoch, NoOp: true}, c.ExpectedEpoch == r.view.MaintenanceEpoch
		}
		r.view.Maintenance, r.view.MaintenanceEpoch = c.State, r.next()
		return Result{}, true
	case StartExclusiveOperation:
		x, held := r.held[c.Scope]
		free := !held && c.Abandoned == 0 || held && r.orphaned(x) && c.Abandoned == x.Epoch
		role, coordinated := c.Scope.Coordinator()
		ok := free && r.is(c.Owner, c.Incarnation) && r.members[c.Owner].State == Active && (!coordinated || r.owns(role, c.Owner, c.Incarnation))
		if ok {
			r.held[c.Scope] = ExclusiveLease{Scope: c.Scope, Owner: c.Owner, Incarnation: c.Incarnation, Epoch: r.next()}
		}
		return Result{}, ok
	case CompleteExclusiveOperation:
		x, held := r.held[c.Scope]
		ok := held && x == ExclusiveLease(c) && !r.orphaned(x)
		if ok {
			delete(r.held, c.Scope)
		}
		return Result{Epoch: c.Epoch}, ok
	case ActivateFeature:
		for _, m := range r.members {
			if m.Role == Voter && m.Protocol.Max < uint32(c.Feature) {
				return Result{}, false
			}
		}
		if c.Expected != r.view.Feature {
			return Result{}, false
		}
		r.view.Feature = c.Feature
		return Result{}, true
	}
	panic("a command without a rule")
}

// membership covers what changes the configuration.
func (r *reference) membership(c Command) (Result, bool) {
	ok := true
	switch c := c.(type) {
	case InitCluster:
		if ok = r.view.ClusterID.IsZero(); ok {
			m := c.Founder
			m.Role, m.State = Voter, Active
			r.members[m.Node] = m
			r.view.ClusterID, r.view.ClusterName, r.view.Generation, r.view.Maintenance = c.ClusterID, c.Name, FirstGeneration, Normal
		}
	case AddLearner:
		m := c.Member
		_, in := r.members[m.Node]
		if ok = !in && !r.gone[m.Node] && c.ExpectedConfig == r.view.Config && m.Protocol.Max >= uint32(r.view.Feature); ok {
			m.State = Joining
			r.members[m.Node] = m
		}
	case PromoteVoter:
		m := r.members[c.Node]
		if ok = m.Role == Learner && m.State == Active && c.ExpectedConfig == r.view.Config; ok {
			m.Role = Voter
			r.members[c.Node] = m
		}
	case RemoveMember:
		m, in := r.members[c.Node]
		others := 0
		for n, x := range r.members {
			if n != c.Node && x.Role == Voter {
				others++
			}
		}
		if ok = in && c.ExpectedConfig == r.view.Config && (m.State == Leaving || c.Force) && others > 0; ok {
			r.strip(c.Node, CodeMemberRemoved)
			delete(r.members, c.Node)
			r.gone[c.Node] = true
		}
	case UpdateMember:
		m, in := r.members[c.Node]
		way := [2]MemberState{m.State, c.State}
		legal := c.State == 0 || c.State == m.State || slices.Contains([][2]MemberState{{Joining, Active}, {Active, Draining}, {Draining, Active}, {Draining, Leaving}}, way)
		if ok = in && legal && c.ExpectedIncarnation == m.Incarnation; !ok {
			break
		}
		old := m
		if c.State != 0 {
			m.State = c.State
		}
		if !c.Incarnation.IsZero() {
			m.Incarnation = c.Incarnation
		}
		if m == old {
			return Result{NoOp: true}, true
		}
		if m.Incarnation != old.Incarnation {
			r.strip(c.Node, CodeIncarnationEnded)
		}
		r.members[c.Node] = m
	}
	if ok {
		r.view.Config++
	}
	return Result{}, ok
}

func (r *reference) lead(c BumpEpoch, term uint64) (Result, bool) {
	now := r.view.LeaderEpoch
	this := c.Term == term && r.is(c.Node, c.Incarnation)
	if now.Epoch != 0 && now.Term == c.Term {
		return Result{Epoch: now.Epoch, NoOp: true}, this && r.view.Leader == c.Node && r.view.LeaderInc == c.Incarnation
	}
	if !this || c.Term < now.Term || c.ExpectedEpoch != now.Epoch {
		return Result{}, false
	}
	r.view.LeaderEpoch = LeaderEpoch{Term: c.Term, Epoch: r.next()}
	r.view.Leader, r.view.LeaderInc = c.Node, c.Incarnation
	return Result{}, true
}

func (r *reference) next() Epoch {
	r.view.Epoch++
	return r.view.Epoch
}

// is reports whether this process is the committed one of a member.
func (r *reference) is(n NodeID, inc IncarnationID) bool {
	m, in := r.members[n]
	return in && m.Incarnation == inc
}

func (r *reference) leads(l LeaderEpoch) bool { return l.Epoch != 0 && l == r.view.LeaderEpoch }

func (r *reference) owns(role Role, n NodeID, inc IncarnationID) bool {
	a, owned := r.owners[role]
	return owned && a == actor{n, inc}
}

func (r *reference) vacate(role Role, code, reason string) {
	a := r.owners[role]
	r.last[role] = Release{Role: role, Epoch: r.epochs[role], Node: a.node, Incarnation: a.inc, Code: code, Reason: reason}
	delete(r.owners, role)
}

func (r *reference) strip(n NodeID, code string) {
	for role, a := range maps.Clone(r.owners) {
		if a.node == n {
			r.vacate(role, code, "")
		}
	}
}

// orphaned: nobody may complete the operation any more.
func (r *reference) orphaned(x ExclusiveLease) bool {
	role, coordinated := x.Scope.Coordinator()
	still := !coordinated || r.owns(role, x.Owner, x.Incarnation) && r.epochs[role] < x.Epoch
	return !r.is(x.Owner, x.Incarnation) || !still
}

// requireEqual compares everything that a view shows.
func (r *reference) requireEqual(t require.TestingT, got View) {
	want := r.view
	want.Index, want.Term = got.Index, got.Term
	want.Members, want.Roles, want.Releases, want.Exclusive, want.RemovedIDs = got.Members, got.Roles, got.Releases, got.Exclusive, got.RemovedIDs
	require.Equal(t, want, got)
	require.Len(t, got.Members, len(r.members))
	for _, m := range got.Members {
		require.Equal(t, r.members[m.Node], m)
	}
	require.Len(t, got.Roles, len(r.epochs))
	for _, g := range got.Roles {
		require.Equal(t, r.epochs[g.Role], g.Epoch)
		require.Equal(t, r.owners[g.Role], actor{g.Owner, g.Incarnation})
	}
	require.Len(t, got.Releases, len(r.last))
	for _, x := range got.Releases {
		if r.last[x.Role].Reason == "" { // Apply's own words
			require.NotEmpty(t, x.Reason)
			x.Reason = ""
		}
		require.Equal(t, r.last[x.Role], x)
	}
	require.Len(t, got.Exclusive, len(r.held))
	for _, x := range got.Exclusive {
		require.Equal(t, r.held[x.Scope], x)
	}
	require.Len(t, got.RemovedIDs, len(r.gone))
	for _, n := range got.RemovedIDs {
		require.True(t, r.gone[n])
	}
}

// TestReference feeds each sequence to Apply and to the reference, which agree on
// every verdict, every result and what is visible; and, from a random place before
// its end on, to a replica restored from a snapshot, which has the same hash before
// and after each of the commands that are left.
func TestReference(t *testing.T) {
	keep := counted(t)
	kinds := map[string]int{}
	resumed, replayed := 0, 0   // restores with a command after them, and those commands
	for range sequences / 100 { // rapid draws 100 at a time
		rapid.Check(t, func(t *rapid.T) {
			s := founded(t)
			ref := newReference(t, s.View())
			length := drawLength(t)
			cut := rapid.IntRange(0, length-1).Draw(t, "cut")
			var restored *State
			restore := func() {
				data, err := s.EncodeSnapshot()
				require.NoError(t, err)
				restored, err = DecodeSnapshot(data)
				require.NoError(t, err)
				require.Equal(t, s.Hash(), restored.Hash())
			}
			if cut == 0 {
				restore()
			}
			n, after := 0, 0
			runFor(t, s, length, func(e entry, p Proposal, _ View, res Result, err error) {
				want, accepted := ref.judge(p, e.Term)
				require.Equal(t, accepted, err == nil, "%s: %v", p.Command.Kind(), err)
				require.Equal(t, want, res, "%s", p.Command.Kind())
				if restored != nil {
					again, err2 := restored.Apply(e.Index, e.Term, p)
					require.Equal(t, res, again)
					require.Equal(t, err, err2)
					require.Equal(t, s.Hash(), restored.Hash(), "%s, %d commands after the restore", p.Command.Kind(), after)
					after++
				}
				if n++; n%10 == 0 {
					ref.requireEqual(t, s.View())
				}
				if n == cut {
					restore()
				}
				verdict := " refused"
				if accepted {
					verdict = " accepted"
				}
				kinds[p.Command.Kind().String()+verdict]++
				var rej *Rejection
				require.False(t, errors.As(err, &rej) && rej.Code == RejectInvalid, "%v", err)
			})
			ref.requireEqual(t, s.View())
			require.Equal(t, s.View(), restored.View())
			require.Equal(t, length-cut, after)
			resumed, replayed = resumed+min(after, 1), replayed+after
		})
	}
	for kind := KindInitCluster; kind <= KindActivateFeature; kind++ {
		require.Positive(t, kinds[kind.String()+" accepted"], "%v", kinds)
		require.Positive(t, kinds[kind.String()+" refused"], "%v", kinds)
	}
	t.Logf("%d sequences, each restored once; %d restores were followed by commands, %d in all: %v", sequences, resumed, replayed, kinds)
	require.GreaterOrEqual(t, resumed, sequences)
	require.Greater(t, replayed, 5*sequences, "hardly anything is left to do after a restore")
	keep(resumed)
}

// TestReferenceIsHeldAgainst plants one fault at a time in what the reference is
// compared with: it must notice.
func TestReferenceIsHeldAgainst(t *testing.T) {
	l := fleet(t)
	ref := newReference(t, l.s.View())
	ref.requireEqual(t, l.s.View())
	for name, change := range map[string]func(*View){
		"an epoch":       func(v *View) { v.Epoch++ },
		"a member":       func(v *View) { v.Members[1].State = Draining },
		"a grant":        func(v *View) { v.Roles = []RoleGrant{{Role: SchedulerLeader, Epoch: 1}} },
		"a tombstone":    func(v *View) { v.RemovedIDs = []NodeID{node(9)} },
		"an operation":   func(v *View) { v.Exclusive = []ExclusiveLease{{Scope: ClusterMigration}} },
		"the leadership": func(v *View) { v.LeaderEpoch.Term++ },
	} {
		v := l.s.View()
		change(&v)
		var seen noticed
		ref.requireEqual(&seen, v)
		require.True(t, bool(seen), name)
	}
}

// noticed is a test that goes on after a failure.
type noticed bool

func (n *noticed) Errorf(string, ...any) { *n = true }
func (n *noticed) FailNow()              {}
