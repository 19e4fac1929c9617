// The faults, how often each is drawn, and what a long run owes of each.

package chaos

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/forgeyard/forgeyard/testkit/scenario"
)

// Fault is one kind of fault with the scenario that makes it and checks what follows.
type Fault struct {
	Name  string
	Often int  // cards in a deck
	Owed  int  // over runs, for its claim to hold
	Calm  bool // makes its own traffic and needs that there is no other
	Run   func(testing.TB, *scenario.World)
}

// Bounds of the scenarios in a chaos run.
const (
	leasesBeforeKill = 500 // less traffic would prove nothing
	postgresAway     = 30 * time.Second
	heldJobs         = 4
)

// Faults lists every kind.
func Faults() []Fault {
	all := []Fault{
		{Name: "kill the owner", Often: 4, Owed: 20, Run: func(t testing.TB, w *scenario.World) { scenario.KillOwner(t, w, leasesBeforeKill) }},
		{Name: "pause the owner", Often: 4, Owed: 20, Run: scenario.PauseOwner},
		{Name: "isolate the owner", Often: 4, Owed: 20, Run: scenario.IsolateOwner},
		{Name: "lose the quorum", Often: 1, Owed: 5, Calm: true, Run: func(t testing.TB, w *scenario.World) { scenario.LoseQuorum(t, w, heldJobs) }},
		{Name: "postgres away for the owner", Often: 1, Owed: 5, Run: scenario.CutOwnerFromPostgres},
		{Name: "a following owner loses the leader", Often: 1, Owed: 5, Run: scenario.CutOwnersLeaderLink},
		{Name: "postgres away for all", Often: 1, Owed: 5, Run: func(t testing.TB, w *scenario.World) { scenario.StopPostgres(t, w, postgresAway) }},
		{Name: "crash root", Often: 1, Owed: 5, Run: scenario.CrashRoot},
	}
	for _, kind := range scenario.Kinds() {
		all = append(all, Fault{Name: "crash " + string(kind), Often: 1, Owed: 5, Run: func(t testing.TB, w *scenario.World) { scenario.CrashActor(t, w, kind) }})
	}
	return all
}

// Deck deals faults in an order that only its seed decides: first one of each
// kind, so that a short run has them all, then whole shuffled decks.
type Deck struct {
	rand  *rand.Rand
	dealt bool
	cards []Fault
}

// NewDeck returns the deck of a seed.
func NewDeck(seed uint64) *Deck { return &Deck{rand: rand.New(rand.NewPCG(seed, 0))} }

// Deal returns the next fault.
func (d *Deck) Deal() Fault {
	if len(d.cards) == 0 {
		for _, f := range Faults() {
			often := f.Often
			if !d.dealt {
				often = 1
			}
			for range often {
				d.cards = append(d.cards, f)
			}
		}
		d.dealt = true
		d.rand.Shuffle(len(d.cards), func(i, j int) { d.cards[i], d.cards[j] = d.cards[j], d.cards[i] })
	}
	next := d.cards[0]
	d.cards = d.cards[1:]
	return next
}
