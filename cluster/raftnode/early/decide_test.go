// The rule, over all its conditions: it campaigns exactly when each of them holds, and one voter at most does.

package early

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/forgeyard/forgeyard/fsm"
)

func node(i int) fsm.NodeID { return fsm.NodeID(ulid.ULID{15: byte(i)}) }

func process(i int) fsm.IncarnationID { return fsm.IncarnationID(ulid.ULID{15: byte(i)}) }

var zero = time.Unix(1_000_000, 0)

// scene is a moment at which everything holds: node 1 of the voters 1, 2, 3
// follows node 3, whose process is gone, and node 2 agrees.
type scene struct {
	self  fsm.NodeID
	s     Standing
	eye   Sight
	said  map[fsm.NodeID]Testimony
	rest  Rested
	now   time.Time
	wants Finding
}

func gone() scene {
	s := Standing{
		Follows: true, Term: 7, Leader: node(3), Incarnation: process(3), Voters: []fsm.NodeID{node(1), node(2), node(3)},
		Appended: zero, Position: Position{Term: 7, Index: 100},
	}
	return scene{
		self: node(1), s: s, now: zero.Add(150 * time.Millisecond), wants: Campaign,
		eye:  Sight{Echoed: zero.Add(-time.Second), EchoOf: process(3), Refused: zero.Add(140 * time.Millisecond)},
		said: map[fsm.NodeID]Testimony{node(2): {Case: s.about(), Gone: true, Position: s.Position}},
	}
}

func TestEachConditionIsNeeded(t *testing.T) {
	require.Equal(t, Campaign, gone().decide())
	for name, change := range map[string]func(*scene){
		"leads or campaigns":             func(c *scene) { c.s.Follows, c.wants = false, NotFollowing },
		"no leader":                      func(c *scene) { c.s.Leader, c.wants = fsm.NodeID{}, NotFollowing },
		"a learner":                      func(c *scene) { c.self, c.wants = node(4), NoVote },
		"a vote that was taken":          func(c *scene) { c.s.Voters, c.wants = []fsm.NodeID{node(2), node(3)}, NoVote },
		"an append just 120 ms old":      func(c *scene) { c.now, c.wants = zero.Add(Silence), Appending },
		"no append ever":                 func(c *scene) { c.s.Appended, c.wants = time.Time{}, Appending },
		"an append after the refusal":    func(c *scene) { c.s.Appended, c.wants = zero.Add(145*time.Millisecond), Appending },
		"refused before the silence":     func(c *scene) { c.eye.Refused, c.wants = zero.Add(Silence), NotRefused },
		"never refused":                  func(c *scene) { c.eye.Refused, c.wants = time.Time{}, NotRefused },
		"an old refusal":                 func(c *scene) { c.now, c.wants = c.eye.Refused.Add(fresh+1), NotRefused },
		"an echo after the refusal":      func(c *scene) { c.eye.Echoed, c.wants = c.eye.Refused.Add(1), NotRefused },
		"no echo on this socket":         func(c *scene) { c.eye.Echoed, c.eye.EchoOf, c.wants = time.Time{}, fsm.IncarnationID{}, NoEcho },
		"an echo older than two seconds": func(c *scene) { c.eye.Echoed, c.wants = c.eye.Refused.Add(-EchoAge-1), NoEcho },
		"an echo of another process":     func(c *scene) { c.eye.EchoOf, c.wants = process(9), NoEcho },
		"a leader that nobody knows": func(c *scene) {
			c.s.Incarnation, c.eye.EchoOf, c.wants = fsm.IncarnationID{}, fsm.IncarnationID{}, NoEcho
		},
		"a campaign a moment ago": func(c *scene) { c.rest.Campaigned, c.wants = c.now.Add(-Rest+1), Resting },
		"... of another term":     func(c *scene) { c.rest = Rested{Campaigned: c.now.Add(-1), Case: Case{Term: 5}}; c.wants = Resting },
		"another leader gone lately": func(c *scene) {
			c.rest = Rested{Testified: c.now.Add(-Rest + 1), Case: Case{Term: 6}}
			c.wants = Resting
		},
		"nobody else says so":             func(c *scene) { c.said, c.wants = nil, Minority },
		"the other still hears it":        func(c *scene) { c.tell(2, func(t *Testimony) { t.Gone = false }); c.wants = Minority },
		"the other means another term":    func(c *scene) { c.tell(2, func(t *Testimony) { t.Case.Term++ }); c.wants = Minority },
		"the other means another leader":  func(c *scene) { c.tell(2, func(t *Testimony) { t.Case.Leader = node(1) }); c.wants = Minority },
		"the other means another process": func(c *scene) { c.tell(2, func(t *Testimony) { t.Case.Incarnation = process(8) }); c.wants = Minority },
		"a learner says so":               func(c *scene) { c.said = map[fsm.NodeID]Testimony{node(4): c.said[node(2)]}; c.wants = Minority },
		"the leader itself says so":       func(c *scene) { c.said = map[fsm.NodeID]Testimony{node(3): c.said[node(2)]}; c.wants = Minority },
		"the other's log is longer":       func(c *scene) { c.tell(2, func(t *Testimony) { t.Position.Index++ }); c.wants = Behind },
		"the other's log is newer": func(c *scene) {
			c.tell(2, func(t *Testimony) { t.Position = Position{Term: 8, Index: 1} })
			c.wants = Behind
		},
		"equal logs, a higher id": func(c *scene) {
			c.self, c.said, c.wants = node(2), map[fsm.NodeID]Testimony{node(1): c.said[node(2)]}, Behind
		},
		"two of five": func(c *scene) { c.s.Voters, c.wants = append(c.s.Voters, node(5), node(6)), Minority },
	} {
		t.Run(name, func(t *testing.T) {
			c := gone()
			change(&c)
			require.Equal(t, c.wants, c.decide())
		})
	}
}

func TestWhatDoesNotHinder(t *testing.T) {
	for name, change := range map[string]func(*scene){
		"the same case was spoken of":     func(c *scene) { c.rest = Rested{Testified: c.now.Add(-time.Second), Case: c.s.about()} },
		"a campaign ten seconds ago":      func(c *scene) { c.rest = Rested{Campaigned: c.now.Add(-Rest), Testified: c.now.Add(-Rest)} },
		"no further refusal for a second": func(c *scene) { c.now = c.eye.Refused.Add(fresh) },
		"the other's log is shorter":      func(c *scene) { c.tell(2, func(t *Testimony) { t.Position.Index-- }) },
		"a voter that hears it is ahead": func(c *scene) {
			c.s.Voters = append(c.s.Voters, node(5), node(6))
			c.said[node(5)] = c.said[node(2)]
			c.said[node(6)] = Testimony{Case: c.s.about(), Position: Position{Term: 7, Index: 101}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := gone()
			change(&c)
			require.Equal(t, Campaign, c.decide())
		})
	}
}

func (c scene) decide() Finding { return decide(c.self, c.s, c.eye, c.said, c.rest, c.now) }

func (c scene) tell(i int, change func(*Testimony)) {
	t := c.said[node(i)]
	change(&t)
	c.said[node(i)] = t
}

// draw makes a scene of few values, so that those at the bounds meet often.
func draw(t *rapid.T) scene {
	c := gone()
	moment := func(name string) time.Time {
		d := rapid.SampledFrom([]int{-11000, -10000, -2001, -2000, -1, 0, 1, 119, 120, 121, 140, 240, 300, 400}).Draw(t, name)
		return zero.Add(time.Duration(d) * time.Millisecond)
	}
	maybe := func(name string) time.Time {
		if rapid.IntRange(0, 3).Draw(t, name+" at all") == 0 {
			return time.Time{}
		}
		return moment(name)
	}
	c.now = zero.Add(time.Duration(rapid.SampledFrom([]int{120, 121, 150, 300, 400, 1120, 1121, 1140, 1141, 12000}).Draw(t, "now")) * time.Millisecond)
	c.s.Follows = rapid.IntRange(0, 9).Draw(t, "follows") > 0
	c.s.Appended = maybe("appended")
	c.eye = Sight{Echoed: maybe("echoed"), EchoOf: process(rapid.IntRange(3, 4).Draw(t, "echo of")), Refused: maybe("refused")}
	c.rest = Rested{Campaigned: maybe("campaigned"), Testified: maybe("testified")}
	if rapid.Bool().Draw(t, "the same case") {
		c.rest.Case = c.s.about()
	}
	c.s.Voters = nil
	for i := range rapid.IntRange(1, 5).Draw(t, "voters") {
		c.s.Voters = append(c.s.Voters, node(i+1))
	}
	c.self = node(rapid.IntRange(1, 6).Draw(t, "self"))
	c.said = map[fsm.NodeID]Testimony{}
	for i := range 6 {
		if rapid.Bool().Draw(t, fmt.Sprint("answers ", i)) {
			about := c.s.about()
			about.Term += uint64(rapid.IntRange(0, 4).Draw(t, "term") / 4)
			c.said[node(i+1)] = Testimony{
				Case: about, Gone: rapid.IntRange(0, 3).Draw(t, "gone") > 0,
				Position: Position{Term: 7, Index: uint64(rapid.IntRange(99, 101).Draw(t, "index"))},
			}
		}
	}
	return c
}

// TestExactlyWhenAllHold says the rule once more, in the words of its specification.
func TestExactlyWhenAllHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := draw(t)
		agree, first := 1, true
		for v, said := range c.said {
			if v == c.self || v == c.s.Leader || !slices.Contains(c.s.Voters, v) || !said.Gone || said.Case != c.s.about() {
				continue
			}
			agree++
			if said.Position.Index > c.s.Position.Index || said.Position.Index == c.s.Position.Index && v.Compare(c.self) < 0 {
				first = false
			}
		}
		onlyVoters := slices.Contains(c.s.Voters, c.self) && c.s.Follows && c.self != c.s.Leader
		oldAppend := !c.s.Appended.IsZero() && c.now.Sub(c.s.Appended) > 120*time.Millisecond
		refusedThen := !c.eye.Refused.IsZero() && c.eye.Refused.Sub(c.s.Appended) > 120*time.Millisecond && c.now.Sub(c.eye.Refused) <= time.Second
		echoed := !c.eye.Echoed.IsZero() && c.eye.EchoOf == c.s.Incarnation && !c.eye.Echoed.After(c.eye.Refused) && c.eye.Refused.Sub(c.eye.Echoed) <= 2*time.Second
		rested := (c.rest.Campaigned.IsZero() || c.now.Sub(c.rest.Campaigned) >= 10*time.Second) &&
			(c.rest.Testified.IsZero() || c.now.Sub(c.rest.Testified) >= 10*time.Second || c.rest.Case == c.s.about())
		want := onlyVoters && oldAppend && refusedThen && echoed && rested && 2*agree > len(c.s.Voters) && first
		require.Equal(t, want, c.decide() == Campaign, "%+v: %s", c, c.decide())
	})
}

// TestOneCampaigns: of voters that all see the same, exactly one campaigns.
func TestOneCampaigns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := gone()
		c.s.Voters = nil
		logs := map[fsm.NodeID]Position{}
		for i := range rapid.IntRange(2, 7).Draw(t, "voters") {
			c.s.Voters = append(c.s.Voters, node(i+1))
			logs[node(i+1)] = Position{Term: uint64(rapid.IntRange(6, 7).Draw(t, "term")), Index: uint64(rapid.IntRange(98, 100).Draw(t, "index"))}
		}
		c.s.Leader = c.s.Voters[rapid.IntRange(0, len(c.s.Voters)-1).Draw(t, "leader")]
		campaigns := 0
		for _, v := range c.s.Voters {
			if v == c.s.Leader {
				continue
			}
			c.self, c.s.Position, c.said = v, logs[v], map[fsm.NodeID]Testimony{}
			for _, o := range c.s.Voters {
				if o != v && o != c.s.Leader {
					c.said[o] = Testimony{Case: c.s.about(), Gone: true, Position: logs[o]}
				}
			}
			if c.decide() == Campaign {
				campaigns++
			}
		}
		want := 1
		if 2*(len(c.s.Voters)-1) <= len(c.s.Voters) {
			want = 0 // the one voter that is left is no majority
		}
		require.Equal(t, want, campaigns)
	})
}

// An echo counts on its own socket only: another one, though of the same leader, may have another way to it.
func TestAnotherSocketHasSeenNothing(t *testing.T) {
	w := New(node(1), nil, Outside{Dial: func(string) (net.Conn, error) { return nil, errors.New("no way") }}, slog.New(slog.DiscardHandler), time.Now)
	w.eye = Sight{Echoed: zero, EchoOf: process(3), Refused: zero}
	w.turnTo(target{node: node(3), addr: "127.0.0.1:1"})
	require.Equal(t, Sight{}, w.eye)
	require.Nil(t, w.socket)
}
