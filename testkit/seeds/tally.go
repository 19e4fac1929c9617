// Counts what really happened, kind by kind: the faults, and what they are there to bring about.

package seeds

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// What the record of chaos runs calls the suite, and a schedule as a whole.
const (
	suite = "seeds"
	aSeed = "a seed"
)

// Tally is how often each kind of fault happened, and each effect came about: for weather and cuts in
// packets, for sick logs in writes, for everything else in strokes.
type Tally struct {
	mu    sync.Mutex
	count map[Kind]int
}

// NewTally returns a tally of nothing.
func NewTally() *Tally { return &Tally{count: map[Kind]int{}} }

// Add counts n more of a kind.
func (t *Tally) Add(kind Kind, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count[kind] += n
}

// Counts returns a copy.
func (t *Tally) Counts() map[Kind]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.count)
}

// Missing lists the kinds of wanted that never happened, in order.
func (t *Tally) Missing(wanted map[Kind]int) (missing []Kind) {
	have := t.Counts()
	for kind, n := range wanted {
		if n > 0 && have[kind] == 0 {
			missing = append(missing, kind)
		}
	}
	slices.Sort(missing)
	return missing
}

// String is one line for each kind that happened.
func (t *Tally) String() string {
	var b strings.Builder
	counts := t.Counts()
	for _, kind := range slices.Concat(Kinds(), Effects()) {
		if n := counts[kind]; n > 0 {
			fmt.Fprintf(&b, "  %-20s  %d\n", kind, n)
		}
	}
	return b.String()
}
