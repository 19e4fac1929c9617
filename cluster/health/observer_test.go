// Tests of the Observer in virtual time, and of the routes over it.

package health

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/cluster/placement"
	"github.com/forgeyard/forgeyard/fsm"
)

// stage is a coordination engine that shows what a test puts on it.
type stage struct {
	mu    sync.Mutex
	view  cluster.View
	self  cluster.Identity
	leads bool
	seen  time.Time // when every report and contact was last refreshed
}

func (s *stage) set(change func(s *stage)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *stage) Self() cluster.Identity { return s.self }

func (s *stage) View() cluster.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view
}

func (s *stage) Leadership() (cluster.Leadership, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cluster.Leadership{Term: 3}, s.leads
}

func (s *stage) Reports() []cluster.NodeReport {
	in := fleet(3, 1)
	var out []cluster.NodeReport
	for _, r := range in.Facts.Reports {
		out = append(out, cluster.NodeReport{HealthReport: r.HealthReport, Received: s.seen})
	}
	return out
}

func (s *stage) Peers() []cluster.Peer {
	return []cluster.Peer{{Node: node(2), MatchIndex: 10, LastContact: s.seen}, {Node: node(3)}}
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

// observed is node self of a fleet of three that node 1 leads.
func observed(self uint64, change func(c *Config)) (*stage, *Observer) {
	in := fleet(3, self)
	st := &stage{view: in.View, self: in.Self, leads: self == 1, seen: time.Now()}
	st.view.Confirmed = time.Now()
	cfg := Config{Coordination: st, Own: func() cluster.HealthReport { return in.Own }, Now: time.Now}
	change(&cfg)
	return st, New(cfg)
}

func TestLeaderFactsAreAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, o := observed(1, func(c *Config) {
			c.Backoff = func() []placement.Delay {
				return []placement.Delay{{Role: fsm.SchedulerLeader, Node: node(2), Failures: 3, Until: time.Now().Add(4 * time.Second)}}
			}
		})
		pass(70 * time.Millisecond)
		f := o.Facts()
		require.Equal(t, node(1), f.From)
		require.Len(t, f.Reports, 3)
		require.Equal(t, int64(70), f.Reports[1].AgeMS)
		require.Equal(t, []PeerFact{{Node: node(2), MatchIndex: 10, ContactMS: 70}, {Node: node(3), ContactMS: -1}}, f.Peers)
		require.Equal(t, []BackoffFact{{Role: fsm.SchedulerLeader, Node: node(2), Failures: 3, LeftMS: 4000}}, f.Backoff)

		_, follower := observed(2, func(*Config) {})
		require.Zero(t, follower.Facts())
	})
}

func TestFollowerAsksTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, leader := observed(1, func(*Config) {})
		var asked fsm.NodeID
		answer := func(context.Context) (Facts, error) { return leader.Facts(), nil }
		st, o := observed(2, func(c *Config) {
			c.Ask = func(ctx context.Context, n fsm.NodeID) (Facts, error) {
				asked = n
				return answer(ctx)
			}
		})
		require.Len(t, o.Observe(t.Context()).Facts.Reports, 3)
		require.Equal(t, node(1), asked)

		// A leader that does not answer costs AskTimeout, no more.
		answer = func(ctx context.Context) (Facts, error) {
			<-ctx.Done()
			return Facts{}, ctx.Err()
		}
		began := time.Now()
		require.Zero(t, o.Observe(t.Context()).Facts)
		require.Equal(t, AskTimeout, time.Since(began))

		// The word of a node that no longer leads counts for nothing.
		answer = func(context.Context) (Facts, error) { return Facts{From: node(3), Applied: 9}, nil }
		require.Zero(t, o.Observe(t.Context()).Facts)

		// Without a leader nobody is asked: the answer is immediate.
		st.set(func(s *stage) { s.view.KnownLeader = fsm.NodeID{} })
		answer = func(context.Context) (Facts, error) {
			require.Fail(t, "asked")
			return Facts{}, nil
		}
		began = time.Now()
		o.Observe(t.Context())
		require.Zero(t, time.Since(began))
	})
}

func TestRunProbesAndDatesTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		down := map[fsm.NodeID]bool{}
		st, o := observed(2, func(c *Config) {
			c.Probe = func(ctx context.Context, n fsm.NodeID) error {
				mu.Lock()
				dead := down[n]
				mu.Unlock()
				if dead {
					<-ctx.Done() // a dead node answers nothing
					return errors.New("dial 10.0.0.3:7443:\ntimeout")
				}
				return nil
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			o.Run(ctx)
		}()
		began := time.Now()
		pass(10 * time.Second)
		synctest.Wait()
		in := o.Observe(t.Context())
		require.Len(t, in.Probes, 2)
		require.Equal(t, began, in.LeaderSince)
		for _, p := range in.Probes {
			require.Empty(t, p.Err)
			require.Equal(t, began, p.Since)
		}

		mu.Lock()
		down[node(3)] = true
		mu.Unlock()
		st.set(func(s *stage) { s.view.KnownLeader = fsm.NodeID{} })
		lost := time.Now()
		pass(5*time.Second + 50*time.Millisecond)
		synctest.Wait()
		in = o.Observe(t.Context())
		require.WithinDuration(t, lost, in.LeaderSince, watchInterval)
		require.Empty(t, in.Probes[0].Err, "node-a still answers: a dead node delays nobody")
		require.Less(t, time.Since(in.Probes[0].LastOK), 2*ProbeInterval)
		require.Equal(t, "dial 10.0.0.3:7443: timeout", in.Probes[1].Err)
		require.WithinDuration(t, lost, in.Probes[1].LastOK, ProbeInterval)
		require.True(t, in.Probes[1].Since.After(in.Probes[1].LastOK))

		s := Build(in)
		require.Equal(t, NoQuorum, s.Headline)
		cancel()
		<-ended
	})
}

func TestRoutes(t *testing.T) {
	_, o := observed(1, func(*Config) {})
	routes := Routes(o)
	require.Len(t, routes, 3)
	for _, r := range routes {
		t.Run(r.Pattern, func(t *testing.T) {
			require.Equal(t, http.MethodGet, r.Method)
			require.Equal(t, access.ClusterRead, r.Permission)
			w := httptest.NewRecorder()
			r.Handler.ServeHTTP(w, httptest.NewRequest(r.Method, r.Pattern, nil))
			require.Equal(t, http.StatusOK, w.Code)
			var doc struct {
				Header
				Headline Headline `json:"headline"`
			}
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &doc))
			require.Equal(t, APIVersion, doc.APIVersion)
			want := map[string]string{"/v1/cluster/status": KindStatus, "/v1/cluster/members": KindMembers, "/v1/cluster/roles": KindRoleList}
			require.Equal(t, want[r.Pattern], doc.Kind)
			require.Equal(t, Degraded, doc.Headline, "node-c was never heard of")
		})
	}
}
