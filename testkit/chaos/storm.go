// What is done to a fleet that works, drawn by a seed: which fault, to whom, for how long, and how long it is then left alone.

package chaos

import (
	"math/rand/v2"
	"time"
)

// Kind is one kind of fault.
type Kind struct {
	Name           string
	Often          int           // cards in a deck
	AtLeast, Under time.Duration // how long it lasts
}

// Blow is one fault that was drawn.
type Blow struct {
	Kind   string
	Victim int           // to be taken modulo how many could be hit
	Lasts  time.Duration // until it is undone
	Rest   time.Duration // after that, until the next
}

// Storm draws blows in an order that its seed alone decides.
type Storm struct {
	rand        *rand.Rand
	deck        *Deck[Kind]
	least, most time.Duration // of a rest
}

// NewStorm returns the storm of a seed. stream tells storms of one seed apart.
func NewStorm(seed, stream uint64, leastRest, mostRest time.Duration, kinds []Kind) *Storm {
	r := rand.New(rand.NewPCG(seed, stream))
	return &Storm{rand: r, deck: NewDeck(r, kinds, func(k Kind) int { return k.Often }), least: leastRest, most: mostRest}
}

// Next draws a blow.
func (s *Storm) Next() Blow {
	k := s.deck.Deal()
	return Blow{Kind: k.Name, Victim: int(s.rand.Uint32() >> 1), Lasts: s.between(k.AtLeast, k.Under), Rest: s.between(s.least, s.most)}
}

func (s *Storm) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.rand.Int64N(int64(most-least)+1))
}
