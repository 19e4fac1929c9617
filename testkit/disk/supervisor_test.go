// The supervised process is this test's own binary: it writes, renames and syncs as it is told.

package disk

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const envDir = "FORGEYARD_DISK_TEST_DIR"

func TestMain(m *testing.M) {
	if !Supervised() {
		os.Exit(m.Run())
	}
	confined := func() error { return errors.Join(Confine(), program(os.Getenv(envDir))) }
	if len(os.Args) > 1 {
		confined = func() error { return Become(os.Args[1:]) }
	}
	if err := confined(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// program replaces a file as one durable step, then writes to another one without a sync.
func program(dir string) error {
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o700); err != nil {
		return err
	}
	tmp := filepath.Join(sub, "new")
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.WriteString("durable")
	if err := errors.Join(err, f.Sync(), f.Close(), os.Rename(tmp, filepath.Join(sub, "file"))); err != nil {
		return err
	}
	for _, d := range []string{sub, dir} {
		h, err := os.Open(d)
		if err != nil {
			return err
		}
		if err := errors.Join(h.Sync(), h.Close()); err != nil {
			return err
		}
	}
	if f, err = os.OpenFile(filepath.Join(sub, "file"), os.O_RDWR, 0); err != nil {
		return err
	}
	_, err = f.WriteAt(bytes.Repeat([]byte{'x'}, 2*sector), 3)
	return errors.Join(err, f.Close(), os.Remove(filepath.Join(sub, "file")), os.WriteFile(filepath.Join(dir, "late"), []byte("1"), 0o600))
}

func supervise(t *testing.T, faults ...Fault) (*Process, string, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envDir+"="+dir)
	var out bytes.Buffer
	cmd.Stderr = &out
	p, err := Start(cmd, dir, faults...)
	require.NoError(t, err)
	return p, dir, &out
}

func TestRecord(t *testing.T) {
	p, dir, out := supervise(t)
	require.NoError(t, p.Wait(), "%s", out)
	var got []string
	for _, e := range p.Events() {
		got = append(got, e.String())
	}
	require.Equal(t, []string{
		"mkdir sub", "create sub/new", "write sub/new 0+7", "sync sub/new", "rename sub/new to sub/file", "sync sub", "sync .",
		"write sub/file 3+1024", "remove sub/file", "create late", "write late 0+1",
	}, got)
	require.NoFileExists(t, filepath.Join(dir, "sub", "file"), "the operations are carried out too")
	require.FileExists(t, filepath.Join(dir, "late"))

	read := func(events []Event, loss Loss, seed uint64) string {
		to := t.TempDir()
		_, err := PowerCut(to, events, loss, rand.New(rand.NewPCG(seed, 0)))
		require.NoError(t, err)
		b, err := os.ReadFile(filepath.Join(to, "sub", "file"))
		if err != nil {
			return "none"
		}
		return string(b)
	}
	all := p.Events()
	require.Equal(t, "durable", read(all, Drop, 1), "neither the write nor the removal was synced")
	require.Equal(t, "none", read(all[:5], Drop, 1), "a file whose directory was not synced")
	seen := map[string]map[string]bool{}
	for _, loss := range []Loss{Cut, Tear} {
		found := map[string]bool{}
		for seed := range uint64(100) {
			found[read(all, loss, seed)] = true
		}
		seen[loss.String()] = found
	}
	x := func(from, to int) string { // which bytes of the write are there
		b := append([]byte("durable"), make([]byte, to-7)...)
		for i := from; i < to; i++ {
			b[i] = 'x'
		}
		return string(b)
	}
	require.Equal(t, map[string]bool{"none": true, "durable": true, x(3, 3+2*sector): true}, seen["cut"])
	require.True(t, seen["tear"][x(sector, 2*sector)], "the middle sector alone")
	require.Len(t, seen["tear"], 9, "no file, or any of the three sectors that the write touches")
}

// TestSignals runs it while every thread of the supervisor gets a signal again and again, as Go's own
// scheduler sends them: no step may take one for a failure.
func TestSignals(t *testing.T) {
	done := make(chan struct{})
	var storm sync.WaitGroup
	var sent int
	storm.Go(func() {
		again := time.NewTicker(50 * time.Microsecond) // the machine is not this test's alone
		defer again.Stop()
		for {
			select {
			case <-done:
				return
			case <-again.C:
			}
			threads, err := os.ReadDir("/proc/self/task")
			if err != nil {
				continue
			}
			for _, thread := range threads {
				if tid, err := strconv.Atoi(thread.Name()); err == nil && unix.Tgkill(os.Getpid(), tid, unix.SIGURG) == nil {
					sent++
				}
			}
		}
	})
	t.Cleanup(func() {
		close(done)
		storm.Wait()
		require.Greater(t, sent, 100)
	})
	for range 5 {
		p, _, out := supervise(t)
		require.NoError(t, p.Wait(), "%s", out)
		require.Len(t, p.Events(), 11)
	}
}

func TestFaults(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		p, _, out := supervise(t, Fault{Op: Sync, Path: "sub", Skip: 1, Times: 1, Errno: unix.EIO})
		require.Error(t, p.Wait())
		require.Contains(t, out.String(), "input/output error")
		require.Equal(t, []int{1}, p.Hits())
		last := p.Events()[len(p.Events())-1]
		require.Equal(t, Event{Op: Sync, Path: "sub", Errno: unix.EIO}, last, "nothing after the refused sync of the directory")
	})
	t.Run("delayed", func(t *testing.T) {
		begin := time.Now()
		p, _, out := supervise(t, Fault{Op: Sync, Delay: 50 * time.Millisecond})
		require.NoError(t, p.Wait(), "%s", out)
		require.Equal(t, []int{3}, p.Hits())
		require.GreaterOrEqual(t, time.Since(begin), 150*time.Millisecond)
	})
	t.Run("hung", func(t *testing.T) {
		p, _, _ := supervise(t, Fault{Op: Rename, Delay: Hang})
		require.Eventually(t, func() bool { return p.Hits()[0] == 1 }, time.Minute, time.Millisecond)
		require.NoError(t, p.Kill())
		require.Error(t, p.Wait())
	})
}

// TestInject: any program can be supervised, and its disk begins to fail when the test says so.
func TestInject(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "/bin/sh", "-c", `echo 1 > "$0/file"; read go; echo 2 >> "$0/file"`, dir)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	p, err := Start(cmd, dir)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(p.Events()) == 2 }, time.Minute, time.Millisecond)
	p.Inject(Fault{Op: Write, Path: "file", Times: 1, Errno: unix.EIO})
	_, err = stdin.Write([]byte("go\n"))
	require.NoError(t, err)
	require.Error(t, p.Wait(), "the shell says that its write failed")
	require.Equal(t, []int{1}, p.Hits())
	b, err := os.ReadFile(filepath.Join(dir, "file"))
	require.NoError(t, err)
	require.Equal(t, "1\n", string(b))
}
