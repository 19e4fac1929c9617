//go:build chaos

// The full counts of the disk faults; make test runs a few of each.

package raftnode

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/forgeyard/forgeyard/testkit/record"
)

// chaosSeed replays a run when FORGEYARD_CHAOS_SEED is set.
func chaosSeed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("FORGEYARD_CHAOS_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("seed %d: replay with FORGEYARD_CHAOS_SEED=%d", seed, seed)
	return seed
}

// counted begins a suite of the record of chaos runs; t is the test of all of it.
func counted(t *testing.T) *record.Suite {
	t.Helper()
	return record.Begin(t, "disk")
}

func TestChaosPowerCut(t *testing.T) {
	const records, points = 4, 50
	counts := counted(t)
	seed := chaosSeed(t)
	operations, lost := 0, 0
	for n := range uint64(records) {
		events := recorded(t, seed+n, 150)
		wrong, k := cutPower(t, events, points, allLosses, rand.New(rand.NewPCG(seed, n)))
		require.Empty(t, wrong)
		operations, lost = operations+len(events), lost+k
	}
	require.Greater(t, lost, records*points)
	t.Logf("%d crash points, each with %d kinds of loss: %d operations recorded, %d lost, nothing that was acknowledged", records*points, len(allLosses), operations, lost)
	counts.Add("power cut", records*points)
}

func TestChaosDamagedFiles(t *testing.T) {
	const flips, cuts, rejoins = 100, 50, 1
	counts := counted(t)
	seed := chaosSeed(t)
	for class := range fileClasses {
		t.Run(class, func(t *testing.T) {
			damaged(t, seed, flips, cuts, rejoins, class)
			counts.Add(class+": bit flipped", flips)
			counts.Add(class+": end cut off", cuts)
		})
	}
}

func TestChaosDiskFails(t *testing.T) {
	const positions = 3
	counts := counted(t)
	rng := rand.New(rand.NewPCG(chaosSeed(t), 1))
	for name, c := range diskCases {
		t.Run(name, func(t *testing.T) {
			for range positions {
				c.run(t, rng.IntN(c.spread+1))
			}
			counts.Add(name, positions)
		})
	}
}

// A disk that is slow or hangs, for as long as is drawn: leadership stays, or moves
// within the watchdog's bound; nobody else stands, and the replicas are equal.
func TestChaosSlowDisks(t *testing.T) {
	const times = 20
	counts := counted(t)
	rng := rand.New(rand.NewPCG(chaosSeed(t), 2))
	for name, c := range map[string]struct {
		least, most time.Duration
		run         func(*testing.T, time.Duration)
	}{
		"slow disk of a follower":  {200 * time.Millisecond, 1500 * time.Millisecond, slowFollower},
		"slow disk of the leader":  {200 * time.Millisecond, 800 * time.Millisecond, slowLeader},
		"disk of the leader hangs": {time.Second, 8 * time.Second, hungLeader},
	} {
		t.Run(name, func(t *testing.T) {
			for range times {
				d := c.least + time.Duration(rng.Int64N(int64(c.most-c.least)))
				t.Run(d.Round(time.Millisecond).String(), func(t *testing.T) { c.run(t, d) })
			}
			counts.Add(name, times)
		})
	}
}

// The node's file system has no room left, then some again: it goes on without a
// restart, and holds whatever was acknowledged before, meanwhile and after.
func TestChaosFileSystemFull(t *testing.T) {
	counts := counted(t)
	dir := t.TempDir()
	raftDir := driverConfig(dir).Dir
	mounted := mountSmall(t, raftDir, "1m")
	n := startNode(t, dir)
	n.reaches(t, 50)
	ballast := filepath.Join(raftDir, "ballast")
	if !mounted {
		t.Log("no file system of its own: mounting is not allowed here; TestChaosDiskFails has the fault")
	} else {
		f, err := os.Create(ballast)
		require.NoError(t, err)
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.NoError(t, f.Close())
		full := func() bool {
			for _, e := range n.Events() {
				if e.Errno == unix.ENOSPC && strings.HasSuffix(e.Path, storeFile) {
					return true
				}
			}
			return false
		}
		n.until(t, full)
		require.NoError(t, os.Remove(ballast))
	}
	k, _ := acksOf(n.Events())
	n.reaches(t, k+100)
	require.NoError(t, n.stdin.Close())
	require.NoError(t, n.Wait(), "%s", n.log)
	refused := 0
	for _, e := range n.Events() {
		if e.Errno == unix.ENOSPC {
			refused++
		}
	}
	t.Logf("%d operations found no space; %d proposals acknowledged", refused, acksIn(n.Events()))
	_, last := acksOf(n.Events())
	holdsIn(t, dir, last)
	if mounted {
		counts.Add("file system full", 1)
	}
}

// mountSmall puts a file system of its own on dir, where that is allowed.
func mountSmall(t *testing.T, dir, size string) bool {
	t.Helper()
	require.NoError(t, os.Mkdir(dir, 0o700))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		require.ErrorIs(t, err, syscall.EPERM)
		return false
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return true
}
