// Guards: what a state permits, how they are acquired, and that nobody else can make one.

package cluster_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/local"
	"github.com/forgeyard/forgeyard/fsm"
)

func TestZeroGuardRefused(t *testing.T) {
	var g cluster.RoleGuard
	require.Zero(t, g.Role())
	require.Zero(t, g.Epoch())
	require.Zero(t, g.Generation())
	require.True(t, g.Owner().IsZero())
	require.True(t, g.Incarnation().IsZero())
	require.Equal(t, cluster.GuardNone, g.State())
	for _, check := range []func() error{g.CheckGranted, g.Check, g.CheckActive} {
		require.ErrorIs(t, check(), cluster.ErrFenced)
	}
	require.ErrorIs(t, context.Cause(g.Context()), cluster.ErrFenced)
	g.Lost(cluster.ErrFenced) // has nobody to tell
}

// TestGuardValidation: each state permits exactly its own work (§302).
func TestGuardValidation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.trees.stop()
		e := r.assign(scheduler)
		r.eventually(func() bool { return r.service.Desired(scheduler).Epoch == e })
		g, err := r.service.AcquireRole(t.Context(), scheduler)
		require.NoError(t, err)
		self := r.engine.Self()
		require.Equal(t, scheduler, g.Role())
		require.Equal(t, e, g.Epoch())
		require.Equal(t, fsm.FirstGeneration, g.Generation())
		require.Equal(t, self.Node, g.Owner())
		require.Equal(t, self.Incarnation, g.Incarnation())

		permits := func(granted, write, active bool) {
			t.Helper()
			require.Equal(t, granted, g.CheckGranted() == nil)
			require.Equal(t, write, g.Check() == nil)
			require.Equal(t, active, g.CheckActive() == nil)
		}
		permits(true, false, false)
		r.service.Report(scheduler, e+1, cluster.TreeFenced, "", "")
		r.service.Report(fsm.ReleaseCoordinator, e, cluster.TreeFenced, "", "")
		permits(true, false, false)
		r.service.Report(scheduler, e, cluster.TreeFenced, "", "")
		permits(true, true, false)
		r.service.Report(scheduler, e, cluster.TreeActive, "", "")
		permits(true, true, true)
		r.service.Report(scheduler, e, cluster.TreeFenced, "", "")
		require.Equal(t, cluster.GuardActive, g.State(), "a late report takes nothing back")
		g.Lost(unknown)
		permits(false, false, false)
		r.service.Report(scheduler, e, cluster.TreeActive, "", "")
		permits(false, false, false)
		r.service.Report(scheduler, e, cluster.TreeEnded, "", "")
		permits(false, false, false)
		require.NoError(t, r.service.Close(t.Context()))
		require.NoError(t, r.engine.Close())
	})
}

// TestInvalidateReachesCopies: one revocation ends every copy at once (§294).
func TestInvalidateReachesCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		g := r.active(scheduler)
		other := r.active(fsm.ReleaseCoordinator)
		again, err := r.service.AcquireRole(t.Context(), scheduler)
		require.NoError(t, err)
		copies := []cluster.RoleGuard{g, again, g}
		derived, cancel := context.WithCancel(g.Context())
		defer cancel()
		g.Lost(cluster.ErrFenced)
		for _, c := range copies {
			require.Equal(t, cluster.GuardRevoked, c.State())
			require.ErrorIs(t, c.CheckGranted(), cluster.ErrFenced)
			require.Error(t, c.Context().Err())
		}
		require.Error(t, derived.Err())
		require.NoError(t, other.CheckActive(), "another role goes on")

		// A late cry of the old guard does not touch its successor.
		r.eventually(func() bool { return r.stands(scheduler).State == cluster.GuardActive })
		next, err := r.service.AcquireRole(t.Context(), scheduler)
		require.NoError(t, err)
		require.Greater(t, next.Epoch(), g.Epoch())
		for _, cause := range []error{unknown, cluster.ErrFenced, cluster.ErrUnconfirmed} {
			g.Lost(cause)
			require.NoError(t, next.CheckActive())
		}
		r.finish()
	})
}

// TestAcquireRole: only a committed assignment to this very process gives a guard (§311).
func TestAcquireRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		denied := func(role fsm.Role) {
			t.Helper()
			g, err := r.service.AcquireRole(t.Context(), role)
			require.ErrorIs(t, err, cluster.ErrNotOwner)
			require.Equal(t, cluster.NotLeader, cluster.KindOf(err))
			require.Zero(t, g)
		}
		denied(scheduler)
		denied(0)
		denied(99)
		g := r.active(scheduler)
		denied(fsm.ReleaseCoordinator)
		require.Empty(t, r.engine.committed(), "acquiring never proposes")

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := r.service.AcquireRole(ended, scheduler)
		require.ErrorIs(t, err, context.Canceled)

		r.engine.frozen = time.Now().Add(-time.Hour)
		r.engine.cut.Store(true)
		_, err = r.service.AcquireRole(t.Context(), scheduler)
		require.ErrorIs(t, err, cluster.ErrUnconfirmed)
		require.Equal(t, cluster.GuardRevoked, g.State())
		denied(scheduler)
		r.engine.cut.Store(false)
		r.eventually(func() bool { return r.stands(scheduler).State == cluster.GuardActive })
		next, err := r.service.AcquireRole(t.Context(), scheduler)
		require.NoError(t, err)
		require.Greater(t, next.Epoch(), g.Epoch())
		r.vacate(scheduler)
		r.eventually(func() bool { return next.State() == cluster.GuardRevoked })
		denied(scheduler)
		r.finish()
	})
}

// TestServiceInterface: the API of §310 and its cached view with a freshness marker (§309).
func TestServiceInterface(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var api cluster.Coordination = r.service
		e := r.assign(scheduler)
		v, err := api.CurrentView(t.Context())
		require.NoError(t, err)
		require.Equal(t, e, v.Role(scheduler).Epoch)
		require.Zero(t, v.Age(time.Now()))
		require.False(t, v.Stale(time.Now()))
		require.True(t, v.Stale(time.Now().Add(2*cluster.ConfirmationBound)))
		require.True(t, cluster.View{}.Stale(time.Now()), "never confirmed")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = api.CurrentView(ended)
		require.ErrorIs(t, err, context.Canceled)
		r.finish()
	})
}

func TestCloseReleasesEveryRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var guards []cluster.RoleGuard
		for _, role := range fsm.Roles() {
			guards = append(guards, r.active(role))
		}
		r.finish()
		for i, role := range fsm.Roles() {
			require.Equal(t, cluster.GuardRevoked, guards[i].State())
			require.True(t, r.engine.Backend.View().Role(role).Vacant())
			require.Zero(t, r.service.Desired(role).Epoch)
		}
		require.Len(t, r.engine.committed(), len(fsm.Roles()))
		require.NoError(t, r.service.Close(t.Context()), "closing twice")
		guards[0].Lost(unknown) // nothing runs any more, and nothing breaks
	})
}

// TestCloseIsBounded: guards are revoked at once, also when a tree hangs and no quorum answers.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		g := r.active(scheduler)
		r.trees.stick()
		r.engine.frozen = time.Now()
		r.engine.cut.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		err := r.service.Close(ctx)
		require.Equal(t, 3*time.Second, time.Since(start))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "SchedulerLeader")
		require.Equal(t, cluster.GuardRevoked, g.State())
		require.ErrorIs(t, g.CheckGranted(), cluster.ErrFenced)
		r.trees.release()
		r.trees.stop()
		require.NoError(t, r.engine.Close())
	})
}

func TestCloseWithoutStartLeavesNothing(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	b, err := local.Open(local.Config{})
	require.NoError(t, err)
	s := cluster.NewService(cluster.ServiceConfig{Backend: b})
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, b.Close())
	goleak.VerifyNone(t, leaks)
}

// TestRealTimeLeavesNothing runs the Service outside a bubble, where goroutines can leak.
func TestRealTimeLeavesNothing(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	r := newRig(t)
	e := r.assign(scheduler)
	require.Eventually(t, func() bool { return r.stands(scheduler).State == cluster.GuardActive }, 5*time.Second, time.Millisecond)
	g, err := r.service.AcquireRole(t.Context(), scheduler)
	require.NoError(t, err)
	g.Lost(unknown)
	require.Eventually(t, func() bool { return r.stands(scheduler).State == cluster.GuardActive }, 5*time.Second, time.Millisecond)
	require.Greater(t, r.stands(scheduler).Epoch, e)
	r.finish()
	goleak.VerifyNone(t, leaks)
}

// TestCannotMint builds packages outside `cluster` that try to make a guard: none compiles (§304, §305).
func TestCannotMint(t *testing.T) {
	packages, err := filepath.Glob("testdata/mint/*")
	require.NoError(t, err)
	require.Greater(t, len(packages), 4)
	cmd := exec.Command("go", "build", "-gcflags=-e", "-o", os.DevNull, "./testdata/mint/...")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	sections := map[string]string{} // compiler output by package
	var current string
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(line, "# github.com/forgeyard/forgeyard/cluster/testdata/mint/"); ok {
			current = strings.TrimSpace(name)
			continue
		}
		sections[current] += line
	}
	for _, dir := range packages {
		name := filepath.Base(dir)
		source, err := os.ReadFile(filepath.Join(dir, "mint.go"))
		require.NoError(t, err)
		_, want, refused := strings.Cut(string(source), "// want: ")
		if !refused {
			require.Empty(t, sections[name], "what is allowed must compile")
			continue
		}
		want, _, _ = strings.Cut(want, "\n")
		require.Contains(t, sections[name], want, name)
	}
}

func BenchmarkGuardCheck(b *testing.B) {
	engine, err := local.Open(local.Config{})
	require.NoError(b, err)
	defer engine.Close()
	s := cluster.NewService(cluster.ServiceConfig{Backend: engine, Roles: fsm.Roles()})
	s.Start()
	defer s.Close(b.Context())
	self := engine.Self()
	term, _ := engine.Leadership()
	propose := func(c fsm.Command) {
		_, err := engine.Propose(b.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: c})
		require.NoError(b, err)
	}
	propose(fsm.BumpEpoch{Term: term.Term, Node: self.Node, Incarnation: self.Incarnation})
	propose(fsm.AssignRole{Leader: engine.View().LeaderEpoch, Role: scheduler, Owner: self.Node, Incarnation: self.Incarnation})
	var g cluster.RoleGuard
	require.Eventually(b, func() bool {
		g, err = s.AcquireRole(b.Context(), scheduler)
		return err == nil
	}, 5*time.Second, time.Millisecond)
	s.Report(scheduler, g.Epoch(), cluster.TreeFenced, "", "")
	defer s.Report(scheduler, g.Epoch(), cluster.TreeEnded, "", "")
	b.ReportAllocs()
	for b.Loop() {
		if err := g.Check(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCachedView(b *testing.B) {
	engine, err := local.Open(local.Config{})
	require.NoError(b, err)
	defer engine.Close()
	s := cluster.NewService(cluster.ServiceConfig{Backend: engine})
	b.ReportAllocs()
	for b.Loop() {
		if v, err := s.CurrentView(b.Context()); err != nil || v.Index == 0 {
			b.Fatal(v, err)
		}
	}
}
