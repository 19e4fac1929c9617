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

// Storm draws blows in an order that its seed alone decides: first one of each
// kind, so that a short run has them all, then whole shuffled decks.
type Storm struct {
	rand        *rand.Rand
	kinds       []Kind
	least, most time.Duration // of a rest
	dealt       bool
	cards       []Kind
}

// NewStorm returns the storm of a seed. stream tells storms of one seed apart.
func NewStorm(seed, stream uint64, leastRest, mostRest time.Duration, kinds []Kind) *Storm {
	return &Storm{rand: rand.New(rand.NewPCG(seed, stream)), kinds: kinds, least: leastRest, most: mostRest}
}

// Next draws a blow.
func (s *Storm) Next() Blow {
	if len(s.cards) == 0 {
		for _, k := range s.kinds {
			n := k.Often
			if !s.dealt {
				n = 1
			}
			for range n {
				s.cards = append(s.cards, k)
			}
		}
		s.dealt = true
		s.rand.Shuffle(len(s.cards), func(i, j int) { s.cards[i], s.cards[j] = s.cards[j], s.cards[i] })
	}
	k := s.cards[0]
	s.cards = s.cards[1:]
	return Blow{Kind: k.Name, Victim: int(s.rand.Uint32() >> 1), Lasts: s.between(k.AtLeast, k.Under), Rest: s.between(s.least, s.most)}
}

func (s *Storm) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.rand.Int64N(int64(most-least)+1))
}
