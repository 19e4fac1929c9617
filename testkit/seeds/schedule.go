// Package seeds runs a fleet of real daemons in virtual time under faults that a seed draws, and judges what it did (H1).
//
// schedule.go draws the faults, nemesis.go carries them out, traffic.go keeps
// the fleet busy, verdict.go judges, keep.go leaves the story of a failed run; run.go
// is the order of it all.
package seeds

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/forgeyard/forgeyard/testkit/netsim"
)

// Kind is one kind of fault.
type Kind string

// The kinds. Loss to Delay are weather: they last from the first second to the
// last and hit every link. The others are strokes.
const (
	Loss      Kind = "loss"
	Duplicate Kind = "duplication"
	Reorder   Kind = "reordering"
	Delay     Kind = "delay"

	Cut         Kind = "link cut"
	CutOneWay   Kind = "link cut one way"
	Isolate     Kind = "daemon isolated"
	CutAgent    Kind = "agent cut off"
	Stop        Kind = "daemon stopped"
	Kill        Kind = "daemon killed"
	KillAgent   Kind = "agent killed"
	LoseDisk    Kind = "disk lost"
	SlowLog     Kind = "log slow"
	FailingLog  Kind = "log failing"
	HungLog     Kind = "log hung"
	CrashActor  Kind = "actor killed"
	TokenRace   Kind = "token raced for"
	TokenExpiry Kind = "token expired"
	Transfer    Kind = "hand-over"
	CutTransfer Kind = "hand-over cut"
)

// Leader as Step.Who means whoever leads at that time.
const Leader = -1

// Step is one stroke: what, when, against whom and for how long.
type Step struct {
	At    time.Duration // after the traffic began
	Lasts time.Duration // until it is undone; 0 when there is nothing to undo
	Kind  Kind
	Who   int           // a place in the fleet, or Leader; the next place when that one cannot be hit
	Other int           // the second party of a cut: so many places further on
	Share float64       // FailingLog: of the writes
	By    time.Duration // SlowLog: at most so much longer
	Pick  uint64        // CrashActor, CutAgent, KillAgent: which; CutOneWay: which way; CutTransfer: how soon
}

// Schedule is everything that is done to one fleet. It follows from the seed alone.
type Schedule struct {
	Seed    uint64
	Length  time.Duration // of the phase with faults
	Weather netsim.Weather
	Steps   []Step // by time
}

// stroke is how often and for how long a kind may be drawn.
type stroke struct {
	kind           Kind
	most           int // in a schedule of a minute
	atLeast, under time.Duration
}

func strokes() []stroke {
	return []stroke{
		{Cut, 6, 2 * time.Second, 8 * time.Second},
		{CutOneWay, 6, 2 * time.Second, 8 * time.Second},
		{Isolate, 4, 2 * time.Second, 10 * time.Second},
		{CutAgent, 3, 3 * time.Second, 25 * time.Second}, // beyond the time of a lease
		{Stop, 4, time.Second, 8 * time.Second},
		{Kill, 4, time.Second, 8 * time.Second},
		{KillAgent, 3, time.Second, 6 * time.Second},
		{LoseDisk, 1, 2 * time.Second, 6 * time.Second}, // a second one of three disks could lose what is committed
		{SlowLog, 4, 3 * time.Second, 10 * time.Second},
		{FailingLog, 4, 2 * time.Second, 8 * time.Second},
		{HungLog, 1, 15 * time.Second, 16 * time.Second}, // longer than the engine bears
		{CrashActor, 8, 0, 0},
		{TokenRace, 1, 0, 0},
		{TokenExpiry, 1, 0, 0},
		{Transfer, 4, 0, 0},
		{CutTransfer, 4, time.Second, 6 * time.Second},
	}
}

// Kinds lists every kind of fault.
func Kinds() []Kind {
	all := []Kind{Loss, Duplicate, Reorder, Delay}
	for _, s := range strokes() {
		all = append(all, s.kind)
	}
	return all
}

// half is the chance that a schedule has a kind at all: a seed that has
// everything hides what only one kind alone would show.
const half = 0.5

// Draw makes the schedule of a seed.
func Draw(seed uint64, length time.Duration) Schedule {
	rnd := rand.New(rand.NewPCG(seed, 0x4831))
	s := Schedule{Seed: seed, Length: length}
	share := func(most float64) float64 {
		if rnd.Float64() < half {
			return 0
		}
		return most * (0.1 + 0.9*rnd.Float64())
	}
	s.Weather = netsim.Weather{Loss: share(0.10), Duplicate: share(0.25), Reorder: share(0.25), HoldBack: 50 * time.Millisecond}
	s.Weather.Slow = time.Duration(share(float64(40 * time.Millisecond)))
	for _, k := range strokes() {
		drawn, most := rnd.Float64() < half, max(1, int(float64(k.most)*length.Minutes()+0.5))
		for n := 1 + rnd.IntN(most); drawn && n > 0; n-- {
			s.Steps = append(s.Steps, draw(rnd, k, length))
		}
	}
	slices.SortStableFunc(s.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return s
}

func draw(rnd *rand.Rand, k stroke, length time.Duration) Step {
	step := Step{
		At: time.Duration(rnd.Float64() * float64(length)).Round(time.Millisecond), Kind: k.kind,
		Who: rnd.IntN(8), Other: 1 + rnd.IntN(8), Pick: rnd.Uint64(),
		Lasts: k.atLeast + time.Duration(rnd.Float64()*float64(k.under-k.atLeast)).Round(time.Millisecond),
		Share: 0.2 + 0.8*rnd.Float64(), By: time.Duration(50+rnd.IntN(1450)) * time.Millisecond,
	}
	if rnd.Float64() < half { // most of what can go wrong goes wrong around the leader
		step.Who = Leader
	}
	return step
}

// Drawn is how many strokes of each kind the schedule has, and 1 for each kind of weather in it.
func (s Schedule) Drawn() map[Kind]int {
	drawn := map[Kind]int{}
	for kind, there := range map[Kind]bool{
		Loss: s.Weather.Loss > 0, Duplicate: s.Weather.Duplicate > 0, Reorder: s.Weather.Reorder > 0, Delay: s.Weather.Slow > 0,
	} {
		if there {
			drawn[kind] = 1
		}
	}
	for _, step := range s.Steps {
		drawn[step.Kind]++
	}
	return drawn
}

// strokes is Drawn without the weather.
func (s Schedule) strokes() map[Kind]int {
	drawn := s.Drawn()
	for _, weather := range []Kind{Loss, Duplicate, Reorder, Delay} {
		delete(drawn, weather)
	}
	return drawn
}

// String prints the schedule, a line for each stroke.
func (s Schedule) String() string {
	var b strings.Builder
	w := s.Weather
	fmt.Fprintf(&b, "seed %d, %s of faults; on every link: loss %.1f %%, duplication %.1f %%, reordering %.1f %% by up to %s, up to %s slower\n",
		s.Seed, s.Length, 100*w.Loss, 100*w.Duplicate, 100*w.Reorder, w.HoldBack, w.Slow.Round(time.Millisecond))
	for _, step := range s.Steps {
		fmt.Fprintf(&b, "  %s\n", step)
	}
	return b.String()
}

func (s Step) String() string {
	who := fmt.Sprintf("place %d", s.Who)
	if s.Who == Leader {
		who = "the leader"
	}
	text := fmt.Sprintf("%8.3fs  %-16s  %s", s.At.Seconds(), s.Kind, who)
	switch s.Kind {
	case Cut, CutOneWay:
		text += fmt.Sprintf(" and %d further on", s.Other)
	case FailingLog:
		text += fmt.Sprintf(", %.0f %% of the writes", 100*s.Share)
	case SlowLog:
		text += fmt.Sprintf(", by up to %s", s.By)
	case CrashActor:
		text += fmt.Sprintf(", number %d", s.Pick%1000)
	}
	if s.Lasts > 0 {
		text += fmt.Sprintf(", for %.3fs", s.Lasts.Seconds())
	}
	return text
}
