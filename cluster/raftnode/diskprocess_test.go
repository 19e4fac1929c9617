// A whole node in a process of its own, whose disk fails, fills up or hangs at the kernel.

package raftnode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/disk"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// processPatience bounds every wait for a fact of a process; a busy machine takes seconds to start one.
const processPatience = 3 * time.Minute

// envNode makes the supervised process a node instead of the driver.
const envNode = "FORGEYARD_DISK_NODE"

// runNode proposes one change after the other, with a snapshot now and then,
// until its input ends, and notes in the journal what was acknowledged.
func runNode(ctx context.Context) (err error) {
	if err := disk.Confine(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	dir := os.Getenv(envDriverDir)
	journal, err := os.OpenFile(filepath.Join(dir, journalFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cfg := driverConfig(dir)
	subject := pki.Node(cfg.Self.Cluster, cfg.Self.Node)
	cfg.Transport = newMemRaft(cfg.Self.Node)
	cfg.Control = &line{board: &switchboard{}, self: cfg.Self.Node, handlers: map[string]handler{}, peer: transport.Peer{
		Subject: subject, Hello: transport.Hello{Cluster: subject.Cluster, ID: subject.ID, Incarnation: cfg.Self.Incarnation},
	}}
	cfg.Member = fsm.Member{
		Node: cfg.Self.Node, Incarnation: cfg.Self.Incarnation, Name: "node", Role: fsm.Learner, State: fsm.Joining,
		Endpoint: "127.0.0.1:7443", Protocol: fsm.VersionRange{Min: 1, Max: 1}, Build: "test",
	}
	cfg.Bootstrap, cfg.ClusterName = true, "test"
	cfg.Exit = func(code int, reason string) {
		fmt.Fprintln(os.Stderr, reason)
		os.Exit(code)
	}
	alone(&cfg)
	n, err := Open(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	for i := 0; ctx.Err() == nil; i++ {
		if i%20 == 19 {
			_ = n.raft.Snapshot().Error() // a disk that refuses it has said so in the log
		}
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		commit, err := n.Propose(bounded, fsm.Proposal{Request: cluster.NewRequestID(), Command: fsm.SetMaintenance{
			ExpectedEpoch: n.View().MaintenanceEpoch, State: fsm.Maintenance(1 + i%2),
		}})
		cancel()
		if err != nil {
			continue
		}
		b, err := json.Marshal(step{Kind: stepConfirm, Last: commit.Index, Term: commit.Term, Done: true})
		if err != nil {
			return err
		}
		if _, err := journal.Write(append(b, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// nodeProcess is a running node under supervision.
type nodeProcess struct {
	*disk.Process
	dir   string
	stdin io.Closer
	log   *bytes.Buffer
}

func startNode(t *testing.T, dir string, faults ...disk.Fault) *nodeProcess {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envDriverDir+"="+dir, envNode+"=1")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	n := &nodeProcess{dir: dir, stdin: in, log: &bytes.Buffer{}}
	cmd.Stdout, cmd.Stderr = n.log, n.log
	n.Process, err = disk.Start(cmd, dir, faults...)
	require.NoError(t, err)
	return n
}

// acksOf is how many proposals were, and the last one.
func acksOf(events []disk.Event) (count int, last step) {
	for _, e := range events {
		if e.Path == journalFile && e.Op == disk.Write && e.Errno == 0 {
			count++
			_ = json.Unmarshal(e.Data, &last) // it wrote it itself
		}
	}
	return count, last
}

// until waits for a fact of the process while it runs.
func (n *nodeProcess) until(t *testing.T, fact func() bool) {
	t.Helper()
	for end := time.Now().Add(processPatience); !fact(); <-time.After(5 * time.Millisecond) {
		if late := time.Now().After(end); late || n.Ended() && !fact() {
			_ = n.Kill() // or it has ended
			require.FailNow(t, "it never came to that", "ended by itself: %v, %v, hits %v, %d acknowledged\n%s", !late, n.Wait(), n.Hits(), acksIn(n.Events()), n.log)
		}
	}
}

// reaches waits until so many proposals were acknowledged.
func (n *nodeProcess) reaches(t *testing.T, count int) {
	t.Helper()
	n.until(t, func() bool { return acksIn(n.Events()) >= count })
}

// holds requires the last acknowledged entry after a power cut of each kind.
func holds(t *testing.T, events []disk.Event, seed uint64) {
	t.Helper()
	_, last := acksOf(events)
	for _, loss := range allLosses {
		to := t.TempDir()
		_, err := disk.PowerCut(to, events, loss, rand.New(rand.NewPCG(seed, uint64(loss))))
		require.NoError(t, err)
		holdsIn(t, to, last)
	}
}

func holdsIn(t *testing.T, dir string, last step) {
	t.Helper()
	cfg := driverConfig(dir)
	require.NoError(t, cfg.setDefaults())
	st, err := openStore(cfg)
	require.NoError(t, err)
	require.GreaterOrEqual(t, st.found.last, last.Last)
	require.GreaterOrEqual(t, st.found.term, last.Term)
	require.NoError(t, st.close())
}

// diskCase is a fault and what it must lead to.
type diskCase struct {
	fault  disk.Fault
	ends   int // the exit status, with the code; 0: the node goes on
	spread int // it may hit any of so many operations after those that are skipped
}

// made is how many operations of each kind the making of a store needs at most.
const made = 30

// diskCases hit the high-water mark after eight syncs where the node is to go on: the first ones may be those of its terms.
var diskCases = map[string]diskCase{
	"log: a sync fails once":          {disk.Fault{Op: disk.Sync, Path: storeFile, Skip: made, Times: 1, Errno: unix.EIO}, ExitStorage, 200},
	"log: a sync finds no space":      {disk.Fault{Op: disk.Sync, Path: storeFile, Skip: made, Times: 1, Errno: unix.ENOSPC}, ExitStorage, 200},
	"log: a write fails once":         {disk.Fault{Op: disk.Write, Path: storeFile, Skip: made, Times: 1, Errno: unix.EIO}, ExitStorage, 200},
	"store: it cannot be made":        {disk.Fault{Op: disk.Write, Path: storeFile, Times: 1, Errno: unix.EIO}, 1, 0},
	"log: no space for a while":       {disk.Fault{Op: disk.Write, Path: storeFile, Skip: made, Times: 5, Errno: unix.ENOSPC}, 0, 200},
	"tail mark: a write fails":        {disk.Fault{Op: disk.Write, Path: tailFile, Skip: made, Times: 1, Errno: unix.EIO}, ExitStorage, 200},
	"snapshot: a sync fails":          {disk.Fault{Op: disk.Sync, Path: "state.bin", Times: 2, Errno: unix.EIO}, 0, 3},
	"snapshot: a write fails":         {disk.Fault{Op: disk.Write, Path: "state.bin", Times: 2, Errno: unix.EIO}, 0, 3},
	"snapshot: no space":              {disk.Fault{Op: disk.Create, Path: "meta.json", Times: 2, Errno: unix.ENOSPC}, 0, 3},
	"snapshot: the seal fails":        {disk.Fault{Op: disk.Sync, Path: sealFile, Times: 2, Errno: unix.EIO}, 0, 3},
	"snapshot: the rename fails":      {disk.Fault{Op: disk.Rename, Path: unfinishedSnapshot, Times: 2, Errno: unix.EIO}, 0, 3},
	"snapshot: its directory fails":   {disk.Fault{Op: disk.Sync, Path: snapshotsDir, Times: 2, Errno: unix.EIO}, 0, 3},
	"high-water mark: a sync fails":   {disk.Fault{Op: disk.Sync, Path: markFile, Skip: 8, Times: 1, Errno: unix.EIO}, 0, 0},
	"high-water mark: of the term":    {disk.Fault{Op: disk.Sync, Path: markFile, Skip: 1, Times: 1, Errno: unix.EIO}, ExitStorage, 0},
	"high-water mark: it has no room": {disk.Fault{Op: disk.Write, Path: markFile, Skip: 8, Times: 2, Errno: unix.ENOSPC}, 0, 0},
}

// run starts a node, hits it so many matching operations later, and checks what follows.
func (c diskCase) run(t *testing.T, later int) {
	t.Helper()
	c.fault.Skip += later
	n := startNode(t, t.TempDir(), c.fault)
	if c.ends != 0 {
		var ended *exec.ExitError
		require.ErrorAs(t, n.Wait(), &ended, "%s", n.log)
		require.Equal(t, c.ends, ended.ExitCode(), "%s", n.log)
		require.Contains(t, n.log.String(), cluster.ErrStoreFailed.Code)
		require.NotContains(t, n.log.String(), cluster.ErrStoreCorrupt.Code, "what the disk refuses is not damaged")
	} else {
		n.until(t, func() bool { return n.Hits()[0] >= c.fault.Times })
		k, _ := acksOf(n.Events())
		n.reaches(t, k+30)
		require.NoError(t, n.stdin.Close())
		require.NoError(t, n.Wait(), "%s", n.log)
	}
	require.NotZero(t, n.Hits()[0], "no fault happened")
	events := n.Events()
	at := slices.IndexFunc(events, func(e disk.Event) bool {
		return e.Op == c.fault.Op && e.Errno == c.fault.Errno && strings.Contains(e.Path, c.fault.Path)
	})
	if c.ends != 0 {
		require.Equal(t, acksIn(events[:at]), acksIn(events), "acknowledged after the disk had failed")
	}
	holds(t, events, uint64(later))
}

func acksIn(events []disk.Event) int { k, _ := acksOf(events); return k }

func TestDiskFails(t *testing.T) {
	for _, name := range []string{"store: it cannot be made", "log: a sync fails once", "log: no space for a while", "snapshot: its directory fails"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := diskCases[name]
			c.run(t, c.spread/6)
		})
	}
}
