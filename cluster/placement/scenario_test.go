// Golden scenarios: what happens to a fleet, and every command the planner answers with.

package placement

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/fsm"
)

// golden compares with testdata/name; FORGEYARD_UPDATE_GOLDEN=1 rewrites it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("FORGEYARD_UPDATE_GOLDEN") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestScenarios(t *testing.T) {
	for name, play := range map[string]func(t *testing.T, s *sim){
		"leader-takes-all": func(t *testing.T, s *sim) {
			s.elect(1)
			s.run(time.Minute)
			require.Equal(t, all(1), s.owners())
		},
		"leader-change-takes-a-new-epoch-for-every-role": func(t *testing.T, s *sim) {
			s.elect(1)
			s.run(time.Second)
			before := s.state.View()
			s.elect(2)
			s.run(time.Minute)
			require.Equal(t, all(2), s.owners())
			for _, r := range fsm.Roles() {
				require.Greater(t, s.state.View().Role(r).Epoch, before.Role(r).Epoch)
			}
			s.log("the same node leads again")
			s.elect(2)
			s.run(time.Second)
			require.Equal(t, all(2), s.owners())
		},
		"leader-without-postgresql": func(t *testing.T, s *sim) {
			s.elect(1)
			s.run(time.Second)
			lost := s.now
			s.log("node-a loses PostgreSQL")
			s.node(1).pg = false
			s.run(20 * time.Second)
			require.Equal(t, all(2), s.owners())
			require.Less(t, s.state.View().Index, uint64(30), "moved once")
			s.log("node-a has PostgreSQL again")
			s.node(1).pg = true
			s.run(2 * time.Minute)
			require.Equal(t, all(2), s.owners(), "placement is sticky")
			require.Less(t, lost.Sub(s.start), time.Minute)
		},
		"leader-without-postgresql-from-the-start": func(t *testing.T, s *sim) {
			s.node(1).pg = false
			s.elect(1)
			s.run(time.Second)
			require.Equal(t, all(2), s.owners())
		},
		"short-postgresql-fault-moves-nothing": func(t *testing.T, s *sim) {
			s.elect(1)
			s.run(time.Second)
			s.log("node-a loses PostgreSQL for 4 s")
			s.node(1).pg = false
			s.run(4 * time.Second)
			s.node(1).pg = true
			s.run(time.Minute)
			require.Equal(t, all(1), s.owners())
		},
		"nobody-has-postgresql": func(t *testing.T, s *sim) {
			s.elect(1)
			s.run(time.Second)
			s.log("PostgreSQL is down for everyone")
			for n := 1; n <= 3; n++ {
				s.node(n).pg = false
			}
			s.run(30 * time.Second)
			s.log("PostgreSQL is back")
			for n := 1; n <= 3; n++ {
				s.node(n).pg = true
			}
			s.run(time.Minute)
			require.Equal(t, all(1), s.owners())
		},
		"owner-falls-silent": func(t *testing.T, s *sim) {
			s.node(1).pg = false
			s.elect(1)
			s.run(time.Second)
			s.log("node-b falls silent")
			s.node(2).alive = false
			s.run(10 * time.Second)
			require.Equal(t, all(3), s.owners())
			s.log("node-b is back")
			s.node(2).alive = true
			s.run(2 * time.Minute)
			require.Equal(t, all(3), s.owners())
		},
		"old-owner-never-heard-by-new-leader": func(t *testing.T, s *sim) {
			s.elect(1)
			s.run(time.Second)
			s.node(1).alive = false
			s.elect(2)
			s.run(10 * time.Second)
			require.Equal(t, all(2), s.owners())
		},
		"role-never-becomes-active": func(t *testing.T, s *sim) {
			s.elect(1)
			s.node(1).starts = false
			s.run(30 * time.Second)
			require.Equal(t, all(2), s.owners())
		},
		"owner-that-renews-for-ever": func(t *testing.T, s *sim) {
			s.elect(1)
			s.node(1).starts = false
			for range 200 {
				s.run(step)
				if g := s.state.View().Role(fsm.SchedulerLeader); s.owner(g.Role) == 1 {
					s.apply(fsm.BumpEpoch{Role: g.Role, ExpectedEpoch: g.Epoch, Node: g.Owner, Incarnation: g.Incarnation})
				}
			}
			require.Equal(t, 2, s.owner(fsm.SchedulerLeader))
		},
		"role-that-nobody-registers": func(t *testing.T, s *sim) {
			for n := 1; n <= 3; n++ {
				s.node(n).runs = []fsm.Role{fsm.SchedulerLeader}
			}
			s.node(3).runs = []fsm.Role{fsm.SchedulerLeader, fsm.ReleaseCoordinator}
			s.elect(1)
			s.run(time.Minute)
			require.Equal(t, []int{1, 3, 0, 0}, s.owners())
		},
		"drained-follower": func(t *testing.T, s *sim) {
			s.node(1).pg = false
			s.elect(1)
			s.run(time.Second)
			require.Equal(t, all(2), s.owners())
			s.memberState(2, fsm.Draining)
			s.run(time.Second)
			require.Equal(t, all(3), s.owners())
		},
		"drain-without-successor-keeps-the-owner": func(t *testing.T, s *sim) {
			s.elect(1)
			s.run(time.Second)
			s.node(2).pg, s.node(3).pg = false, false
			s.memberState(1, fsm.Draining)
			s.run(10 * time.Second)
			require.Equal(t, all(1), s.owners())
			s.log("node-c has PostgreSQL")
			s.node(3).pg = true
			s.run(time.Second)
			require.Equal(t, all(3), s.owners())
		},
		"poison-row-backs-off": func(t *testing.T, s *sim) {
			s.elect(1)
			for range 200 {
				s.run(step)
				if s.owner(fsm.SchedulerLeader) != 0 {
					s.giveUp(fsm.SchedulerLeader)
				}
			}
			require.Equal(t, []int{0, 1, 1, 1}, s.owners(), "only the poisoned role suffers")
		},
		"owner-restarts": func(t *testing.T, s *sim) {
			s.elect(1)
			s.run(time.Second)
			s.node(1).pg = false
			s.run(10 * time.Second)
			require.Equal(t, all(2), s.owners())
			m, _ := s.state.View().Member(s.order[1])
			s.log("node-b restarts")
			s.apply(fsm.UpdateMember{Node: m.Node, ExpectedIncarnation: m.Incarnation, Incarnation: id[fsm.IncarnationID](77)})
			s.run(10 * time.Second)
			require.Equal(t, all(3), s.owners())
		},
		"leader-change-while-nobody-has-postgresql": func(t *testing.T, s *sim) {
			s.elect(1)
			s.run(time.Second)
			for n := 1; n <= 3; n++ {
				s.node(n).pg = false
			}
			s.elect(2)
			s.run(5 * time.Second)
			require.Equal(t, all(0), s.owners())
			s.log("PostgreSQL is back")
			for n := 1; n <= 3; n++ {
				s.node(n).pg = true
			}
			s.run(5 * time.Second)
			require.Equal(t, all(2), s.owners())
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, 3)
			play(t, s)
			golden(t, name+".golden", s.history.String())
		})
	}
}

func TestSingleNodeKeepsItsRoles(t *testing.T) {
	s := newSim(t, 1)
	s.elect(1)
	s.run(time.Second)
	require.Equal(t, all(1), s.owners())
	s.node(1).pg = false
	s.run(time.Minute)
	require.Equal(t, all(0), s.owners(), "not active for 15 s: vacated, and vacant until PostgreSQL is back")
	s.node(1).pg = true
	s.run(time.Minute)
	require.Equal(t, all(1), s.owners())
}
