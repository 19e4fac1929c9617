// The planner: its bounds and its fairness, over made-up queues.

package scheduler

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPlan(t *testing.T) {
	for name, c := range map[string]struct {
		jobs   []job
		agents []agent
		served []string // queues, in the order of their last leases
		limit  int
		want   []string // job>agent
	}{
		"nothing":        {},
		"no agent":       {jobs: []job{{id: "1"}}},
		"spread by free": {jobs: []job{{id: "1"}, {id: "2"}, {id: "3"}}, agents: []agent{{id: "a", free: 1}, {id: "b", free: 2}}, want: []string{"1>b", "2>a", "3>b"}},
		"labels":         {jobs: []job{{id: "1", labels: []string{"x", "y"}}}, agents: []agent{{id: "a", free: 9, labels: []string{"x"}}, {id: "b", free: 1, labels: []string{"y", "x"}}}, want: []string{"1>b"}},
		"a misfit is passed over": {
			jobs: []job{{id: "1", labels: []string{"x"}, priority: 9}, {id: "2"}}, agents: []agent{{id: "a", free: 1}}, want: []string{"2>a"},
		},
		"full":  {jobs: []job{{id: "1"}, {id: "2"}}, agents: []agent{{id: "a", free: 1}}, want: []string{"1>a"}},
		"limit": {jobs: []job{{id: "1"}, {id: "2"}}, agents: []agent{{id: "a", free: 9}}, limit: 1, want: []string{"1>a"}},
		"priority, then age": {
			jobs: []job{{id: "1", seq: 1}, {id: "2", seq: 3, priority: 1}, {id: "3", seq: 2, priority: 1}}, agents: []agent{{id: "a", free: 9}},
			want: []string{"3>a", "2>a", "1>a"},
		},
		"queues take turns": {
			jobs:   []job{{id: "1", queue: "p", seq: 1}, {id: "2", queue: "p", seq: 2}, {id: "3", queue: "q", seq: 3}, {id: "4", queue: "r", seq: 4}},
			agents: []agent{{id: "a", free: 9}}, served: []string{"q", "p"}, want: []string{"4>a", "3>a", "1>a", "2>a"},
		},
		"the agent that others need least": {
			jobs: []job{{id: "1", seq: 1}, {id: "2", seq: 2, labels: []string{"gpu"}}}, agents: []agent{{id: "a", free: 9, labels: []string{"gpu"}}, {id: "b", free: 1}},
			want: []string{"1>b", "2>a"},
		},
		"a label that nobody asks for is not scarce": {
			jobs: []job{{id: "1"}}, agents: []agent{{id: "a", free: 9, labels: []string{"gpu"}}, {id: "b", free: 1}}, want: []string{"1>a"},
		},
		"a doubted agent last": {
			jobs: []job{{id: "1", seq: 1}, {id: "2", seq: 2}}, agents: []agent{{id: "a", free: 1, doubted: true}, {id: "b", free: 1}}, want: []string{"1>b", "2>a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			turns := newTurns()
			for _, q := range c.served {
				turns.served(q)
			}
			var got []string
			for _, p := range plan(window{jobs: c.jobs, agents: c.agents}, turns, cmp.Or(c.limit, 100)) {
				got = append(got, p.job+">"+p.agent)
			}
			require.Equal(t, c.want, got)
		})
	}
}

// world draws a window and turns.
func world(t *rapid.T) (window, turns) {
	label := rapid.SampledFrom([]string{"x", "y", "z"})
	labels := rapid.SliceOfNDistinct(label, 0, 3, rapid.ID)
	queue := rapid.SampledFrom([]string{"p", "q", "r"})
	var w window
	for i := range rapid.IntRange(0, 14).Draw(t, "jobs") {
		w.jobs = append(w.jobs, job{
			id: fmt.Sprint(i), queue: queue.Draw(t, "queue"), labels: labels.Draw(t, "wants"), priority: rapid.IntRange(0, 2).Draw(t, "priority"), seq: int64(i),
		})
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "agents") {
		w.agents = append(w.agents, agent{id: string(rune('a' + i)), labels: labels.Draw(t, "has"), free: rapid.IntRange(0, 4).Draw(t, "free")})
	}
	u := newTurns()
	for _, q := range rapid.SliceOfN(queue, 0, 6).Draw(t, "served") {
		u.served(q)
	}
	return w, u
}

// TestPlanProperties replays a plan pick by pick: no job twice, no agent over
// its capacity, labels respected; each pick is the first of its queue that
// could be placed then, and no other queue with such a job was served longer
// ago; at the end no job is left that fits a free agent.
func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, u := world(t)
		limit := rapid.IntRange(1, 20).Draw(t, "limit")
		picks := plan(w, u, limit)
		require.Equal(t, picks, plan(w, u, limit), "pure")

		free := map[string]int{}
		for _, a := range w.agents {
			free[a.id] = a.free
		}
		fits := func(j job) bool {
			for _, a := range w.agents {
				if free[a.id] > 0 && carries(a.labels, j.labels) {
					return true
				}
			}
			return false
		}
		left := map[string]job{}
		for _, j := range w.jobs {
			left[j.id] = j
		}
		for _, p := range picks {
			j, waits := left[p.job]
			require.True(t, waits, "placed once")
			require.Equal(t, j.queue, p.queue)
			for _, other := range left {
				if !fits(other) {
					continue
				}
				if other.queue == j.queue {
					require.LessOrEqual(t, before(j, other), 0, "%v overtook %v", j, other)
				} else {
					require.False(t, u.last(other.queue) < u.last(j.queue), "queue %s was served although it was queue %s's turn", j.queue, other.queue)
				}
			}
			for _, a := range w.agents {
				if a.id == p.agent {
					require.True(t, carries(a.labels, j.labels))
				}
			}
			free[p.agent]--
			require.GreaterOrEqual(t, free[p.agent], 0)
			delete(left, p.job)
			u.served(p.queue)
		}
		if len(picks) < limit {
			for _, j := range left {
				require.False(t, fits(j), "job %s waits while an agent is free", j.id)
			}
		}
	})
}

// TestFairness is the stated bound: while a queue has a job that could be
// placed, each other queue gets at most one lease before it is served, however
// many jobs the others have, and whatever jobs are there that no agent can run.
func TestFairness(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		flood := rapid.IntRange(1, 300).Draw(t, "flood")
		queues := rapid.IntRange(1, 5).Draw(t, "other queues")
		misfits := rapid.IntRange(0, 300).Draw(t, "misfits")
		slots := rapid.IntRange(1, 8).Draw(t, "slots")
		batch := rapid.IntRange(1, 16).Draw(t, "batch")
		var w window
		seq := int64(0)
		add := func(queue string, labels ...string) {
			seq++
			w.jobs = append(w.jobs, job{id: fmt.Sprint(seq), queue: queue, labels: labels, seq: seq, priority: rapid.IntRange(-1, 1).Draw(t, "priority")})
		}
		for range misfits {
			add("flood", "nobody has it")
			add("0", "nobody has it")
		}
		for range flood {
			add("flood")
		}
		for q := range queues {
			for range rapid.IntRange(1, 4).Draw(t, "jobs") {
				add(fmt.Sprint(q))
			}
		}
		u := newTurns()
		since := map[string]map[string]int{} // queue that waits: leases of each other queue since it was served
		for {
			w.agents = []agent{{id: "a", free: slots}}
			picks := plan(w, u, batch)
			if len(picks) == 0 {
				break
			}
			for _, p := range picks {
				waits := map[string]bool{}
				for _, j := range w.jobs {
					waits[j.queue] = waits[j.queue] || len(j.labels) == 0
				}
				for q := range waits {
					if !waits[q] || q == p.queue {
						delete(since, q)
						continue
					}
					if since[q] == nil {
						since[q] = map[string]int{}
					}
					since[q][p.queue]++
					require.LessOrEqual(t, since[q][p.queue], 1, "queue %s got a second lease while %s waited", p.queue, q)
				}
				for i, j := range w.jobs {
					if j.id == p.job {
						w.jobs = append(w.jobs[:i:i], w.jobs[i+1:]...)
						break
					}
				}
				u.served(p.queue)
			}
		}
		require.Len(t, w.jobs, 2*misfits, "only what no agent can run is left")
	})
}

// Turns depend on the last leases alone, so reading those again gives the same.
func TestTurnsAreDerived(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 3*turnsKept).Draw(t, "leases")
		queues := rapid.IntRange(1, 3*turnsKept).Draw(t, "queues")
		step := rapid.IntRange(1, 97).Draw(t, "step")
		live, rebuilt := newTurns(), newTurns()
		for i := range n {
			live.served(fmt.Sprint(i * step % queues))
		}
		for i := max(0, n-turnsKept); i < n; i++ {
			rebuilt.served(fmt.Sprint(i * step % queues))
		}
		age := func(t turns, q string) uint64 {
			if last := t.last(q); last > 0 {
				return t.made - last
			}
			return turnsKept
		}
		for q := range queues {
			require.Equal(t, age(live, fmt.Sprint(q)), age(rebuilt, fmt.Sprint(q)))
		}
		require.LessOrEqual(t, len(live.lastOf), 2*turnsKept+1)
	})
}
