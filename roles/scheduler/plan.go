// The plan of one lease batch: a pure function from what is queued, who is free and whose turn it is to picks.

package scheduler

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
)

// job is a queued job, as far as placing it needs.
type job struct {
	id       string
	queue    string
	labels   []string // an agent must carry all of them
	priority int
	seq      int64
}

// agent is an agent with free capacity.
type agent struct {
	id      string
	labels  []string
	free    int
	doubted bool // it let its last lease expire unaccepted: it is asked last
}

// window is what a plan is made from: the head of each queue, and the free agents.
type window struct {
	jobs   []job
	agents []agent
}

// pick gives a job to an agent.
type pick struct {
	job, queue, agent string
}

// plan places at most limit jobs.
//
// Queues take turns, the one whose last lease is longest ago first, one job a
// turn: between two leases of a queue whose head could have been placed, each
// other queue gets at most one. A queue whose jobs fit no free agent keeps its
// turn and holds up nobody.
//
// Within a queue the job of the highest priority goes first, then the oldest;
// one that fits no free agent is passed over.
//
// A job goes to the agent that carries its labels and the fewest others that
// queued jobs ask for, so that scarce agents stay free for those; of these to
// the one with the most free capacity; the smaller id breaks a tie.
func plan(w window, t turns, limit int) []pick {
	pool := newPool(w)
	ring := lines(w.jobs, pool)
	slices.SortFunc(ring, func(a, b *line) int {
		return cmp.Or(cmp.Compare(t.last(a.queue), t.last(b.queue)), strings.Compare(a.queue, b.queue))
	})
	var picks []pick
	for len(ring) > 0 {
		kept := ring[:0] // those that were served: they had the earliest turns, and now the latest, in the same order
		for _, l := range ring {
			if len(picks) >= limit {
				return picks
			}
			if j, a, ok := l.place(); ok {
				picks = append(picks, pick{job: j, queue: l.queue, agent: a})
				kept = append(kept, l)
			}
		}
		ring = kept
	}
	return picks
}

// line is one queue: its jobs by what they ask for.
type line struct {
	queue   string
	classes []*class
}

// class is the jobs of one queue that ask for the same labels, in order.
type class struct {
	jobs    []job
	options []option
}

// option is a kind of agents that a class may use.
type option struct {
	kind    *kind
	surplus int // the less, the better
}

func lines(jobs []job, p *pool) []*line {
	byQueue := map[string]*line{}
	byClass := map[string]*class{}
	var all []*line
	for _, j := range jobs {
		l := byQueue[j.queue]
		if l == nil {
			l = &line{queue: j.queue}
			byQueue[j.queue] = l
			all = append(all, l)
		}
		key := j.queue + "\x00" + strings.Join(j.labels, "\x00")
		c := byClass[key]
		if c == nil {
			c = &class{options: p.options(j.labels)}
			byClass[key] = c
			l.classes = append(l.classes, c)
		}
		c.jobs = append(c.jobs, j)
	}
	for _, c := range byClass {
		slices.SortFunc(c.jobs, before)
	}
	return all
}

// before is the order within a queue, the same for every leader (§249).
func before(a, b job) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.seq, b.seq), strings.Compare(a.id, b.id))
}

// place takes the first job of the line that fits a free agent. Capacity only
// shrinks within a plan, so a class that fits nowhere is not looked at again.
func (l *line) place() (job, agent string, ok bool) {
	for {
		first := -1
		for i, c := range l.classes {
			if len(c.jobs) > 0 && (first < 0 || before(c.jobs[0], l.classes[first].jobs[0]) < 0) {
				first = i
			}
		}
		if first < 0 {
			return "", "", false
		}
		c := l.classes[first]
		if k := c.best(); k != nil {
			job, c.jobs = c.jobs[0].id, c.jobs[1:]
			return job, k.take(), true
		}
		l.classes = slices.Delete(l.classes, first, first+1)
	}
}

func (c *class) best() *kind {
	var best *option
	for i := range c.options {
		o := &c.options[i]
		if len(o.kind.agents) == 0 {
			continue
		}
		if best == nil || o.surplus < best.surplus || o.surplus == best.surplus && o.kind.agents.roomier(o.kind.agents[0], best.kind.agents[0]) {
			best = o
		}
	}
	if best == nil {
		return nil
	}
	return best.kind
}

// pool is the free agents by kind.
type pool struct {
	kinds  []*kind
	wanted map[string]bool // labels that some queued job asks for
}

// kind is agents that carry the same labels; those with capacity, the freest on top.
type kind struct {
	labels  []string
	doubted bool
	agents  byFree
}

func newPool(w window) *pool {
	p := &pool{wanted: map[string]bool{}}
	for _, j := range w.jobs {
		for _, l := range j.labels {
			p.wanted[l] = true
		}
	}
	byKey := map[string]*kind{}
	for _, a := range w.agents {
		if a.free <= 0 {
			continue
		}
		key := strings.Join(a.labels, "\x00")
		if a.doubted {
			key += "\x00?"
		}
		k := byKey[key]
		if k == nil {
			k = &kind{labels: a.labels, doubted: a.doubted}
			byKey[key] = k
			p.kinds = append(p.kinds, k)
		}
		k.agents = append(k.agents, a)
	}
	for _, k := range p.kinds {
		heap.Init(&k.agents)
	}
	return p
}

// aLot is more than any surplus of labels.
const aLot = 1 << 20

func (p *pool) options(labels []string) []option {
	var out []option
	for _, k := range p.kinds {
		if !carries(k.labels, labels) {
			continue
		}
		o := option{kind: k}
		for _, l := range k.labels {
			if p.wanted[l] && !slices.Contains(labels, l) {
				o.surplus++
			}
		}
		if k.doubted {
			o.surplus += aLot
		}
		out = append(out, o)
	}
	return out
}

// take uses one slot of the freest agent.
func (k *kind) take() string {
	id := k.agents[0].id
	if k.agents[0].free--; k.agents[0].free > 0 {
		heap.Fix(&k.agents, 0)
	} else {
		heap.Pop(&k.agents)
	}
	return id
}

// byFree is a heap; its order is total, so that a plan depends on nothing but its input.
type byFree []agent

func (byFree) roomier(a, b agent) bool { return a.free > b.free || a.free == b.free && a.id < b.id }
func (h byFree) Len() int              { return len(h) }
func (h byFree) Less(i, j int) bool    { return h.roomier(h[i], h[j]) }
func (h byFree) Swap(i, j int)         { h[i], h[j] = h[j], h[i] }
func (h *byFree) Push(a any)           { *h = append(*h, a.(agent)) }
func (h *byFree) Pop() any {
	old := *h
	a := old[len(old)-1]
	*h = old[:len(old)-1]
	return a
}

func carries(have, want []string) bool {
	for _, w := range want {
		if !slices.Contains(have, w) {
			return false
		}
	}
	return true
}
