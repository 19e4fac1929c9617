// Effects: what the faults must have led to in some of the seeds, or the judges have nothing to judge.

package seeds

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// The effects. They are counted beside the faults, over all seeds of a run.
const (
	Takeover       Kind = "takeover"             // the scheduler's fence was raised again
	Refusal        Kind = "fenced refusal"       // a guard refused its holder: FENCED
	UnknownOutcome Kind = "unknown outcome"      // a proposal on which its caller had no certain answer
	Election       Kind = "election"             // a seed at whose end another term had a leader than at its beginning
	LedEarly       Kind = "leader elected early" // within the time in which the timers would not have
	Compacted      Kind = "snapshot taken"
	Installed      Kind = "snapshot installed" // over the log of a follower, or on a new node
	Interrupted    Kind = "hand-over failed"   // amid it
)

// often lists the effects that five short seeds have, too.
func often() []Kind { return []Kind{Takeover, Refusal, UnknownOutcome, Election, LedEarly, Compacted} }

// Effects lists all.
func Effects() []Kind { return append(often(), Installed, Interrupted) }

// What daemons log, word for word.
const (
	saysCampaign  = "campaigning early: the leader's process is gone"
	saysLeads     = "leadership established"
	saysCompacted = "snapshot complete up to"
	saysInstalled = "Installed remote snapshot"
)

// listener hears the log of one incarnation and counts effects.
type listener struct {
	tally *Tally

	mu       sync.Mutex
	campaign uint64 // the term in which it last campaigned early
}

// hear is told of every line; attr gives a line's number by name.
func (l *listener) hear(message string, attr func(name string) uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch message {
	case saysCampaign:
		l.campaign = attr("term")
	case saysLeads:
		if l.campaign > 0 && attr("term") == l.campaign+1 { // another campaign would have another term
			l.tally.Add(LedEarly, 1)
		}
	case saysCompacted:
		l.tally.Add(Compacted, 1)
	case saysInstalled:
		l.tally.Add(Installed, 1)
	}
}

// overheard is a handler of log lines that a listener hears, too.
type overheard struct {
	slog.Handler
	by *listener
}

// Handle implements slog.Handler.
func (o overheard) Handle(ctx context.Context, r slog.Record) error {
	o.by.hear(r.Message, func(name string) (n uint64) {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == name && a.Value.Kind() == slog.KindUint64 {
				n = a.Value.Uint64()
			}
			return a.Key != name
		})
		return n
	})
	return o.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (o overheard) WithAttrs(attrs []slog.Attr) slog.Handler {
	return overheard{o.Handler.WithAttrs(attrs), o.by}
}

// WithGroup implements slog.Handler.
func (o overheard) WithGroup(name string) slog.Handler {
	return overheard{o.Handler.WithGroup(name), o.by}
}

// effects says how often each effect came about.
func (t *Tally) effects() string {
	counts, said := t.Counts(), []string{}
	for _, kind := range Effects() {
		said = append(said, fmt.Sprintf("%s: %d", kind, counts[kind]))
	}
	return strings.Join(said, ", ")
}
