// Cards: what a seed draws from, so that a short run has all of it and a long one the wanted shares.

package chaos

import "math/rand/v2"

// Deck deals cards in an order that its source of chance alone decides: first one
// of each kind, then whole shuffled decks.
type Deck[C any] struct {
	rand  *rand.Rand
	all   []C
	often func(C) int // cards of the kind in a deck
	dealt bool
	cards []C
}

// NewDeck returns a deck of these kinds.
func NewDeck[C any](r *rand.Rand, all []C, often func(C) int) *Deck[C] {
	return &Deck[C]{rand: r, all: all, often: often}
}

// Deal returns the next card.
func (d *Deck[C]) Deal() C {
	if len(d.cards) == 0 {
		for _, c := range d.all {
			n := 1
			if d.dealt {
				n = d.often(c)
			}
			for range n {
				d.cards = append(d.cards, c)
			}
		}
		d.dealt = true
		d.rand.Shuffle(len(d.cards), func(i, j int) { d.cards[i], d.cards[j] = d.cards[j], d.cards[i] })
	}
	next := d.cards[0]
	d.cards = d.cards[1:]
	return next
}
