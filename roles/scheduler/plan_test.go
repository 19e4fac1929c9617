package scheduler

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPlan(t *testing.T) {
	for name, c := range map[string]struct {
		jobs   []job
		agents []agent
		want   []pick
	}{
		"nothing":             {},
		"no agent":            {jobs: []job{{id: "1"}}},
		"spread by free":      {jobs: []job{{id: "1"}, {id: "2"}, {id: "3"}}, agents: []agent{{id: "a", free: 1}, {id: "b", free: 2}}, want: []pick{{"1", "b"}, {"2", "a"}, {"3", "b"}}},
		"labels":              {jobs: []job{{id: "1", labels: []string{"x", "y"}}}, agents: []agent{{id: "a", free: 9, labels: []string{"x"}}, {id: "b", free: 1, labels: []string{"y", "x"}}}, want: []pick{{"1", "b"}}},
		"a misfit is skipped": {jobs: []job{{id: "1", labels: []string{"x"}}, {id: "2"}}, agents: []agent{{id: "a", free: 1}}, want: []pick{{"2", "a"}}},
		"full":                {jobs: []job{{id: "1"}, {id: "2"}}, agents: []agent{{id: "a", free: 1}}, want: []pick{{"1", "a"}}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, plan(c.jobs, c.agents)) })
	}
}

// TestPlanProperties: no job twice, no agent over its capacity, labels
// respected, no job left while an agent that fits is free, and of two jobs with
// the same labels the earlier one is served first.
func TestPlanProperties(t *testing.T) {
	labels := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x", "y", "z"}), 0, 3, rapid.ID)
	rapid.Check(t, func(t *rapid.T) {
		jobs := make([]job, rapid.IntRange(0, 12).Draw(t, "jobs"))
		for i := range jobs {
			jobs[i] = job{id: string(rune('A' + i)), labels: labels.Draw(t, "wants")}
		}
		agents := make([]agent, rapid.IntRange(0, 4).Draw(t, "agents"))
		byID := map[string]*agent{}
		for i := range agents {
			agents[i] = agent{id: string(rune('a' + i)), labels: labels.Draw(t, "has"), free: rapid.IntRange(0, 4).Draw(t, "free")}
		}
		picks := plan(jobs, agents)
		for i := range agents {
			byID[agents[i].id] = &agents[i]
		}
		placed := map[string]bool{}
		for _, p := range picks {
			require.False(t, placed[p.job])
			placed[p.job] = true
			byID[p.agent].free--
		}
		for _, a := range agents {
			require.GreaterOrEqual(t, a.free, 0)
		}
		for i, j := range jobs {
			for _, p := range picks {
				if p.job == j.id {
					require.True(t, carries(byID[p.agent].labels, j.labels))
				}
			}
			if placed[j.id] {
				continue
			}
			for _, a := range agents {
				require.False(t, a.free > 0 && carries(a.labels, j.labels), "job %s waits while agent %s is free", j.id, a.id)
			}
			for _, later := range jobs[i+1:] {
				same := carries(j.labels, later.labels) && carries(later.labels, j.labels)
				require.False(t, same && placed[later.id], "job %s overtook %s", later.id, j.id)
			}
		}
	})
}
