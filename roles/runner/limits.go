// The limits of one attempt, and the supervisor's watch over them.

package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Limits bound what one attempt may take of its machine. A zero field takes its
// default. An attempt that breaks one is killed as a whole and fails with that reason.
type Limits struct {
	Processes int   `json:"processes"` // at a time, threads not counted; 1024
	Disk      int64 `json:"disk"`      // bytes below the attempt's directory; 10 GiB
	// DiskFree is how many bytes stay free on that file system; 256 MiB. Below
	// it an attempt is killed whose own directory holds a sixteenth of Disk or
	// more: the neighbours of one that fills the disk are left alone.
	DiskFree int64 `json:"disk_free"`
}

func (l Limits) withDefaults() Limits {
	if l.Processes <= 0 {
		l.Processes = 1024
	}
	if l.Disk <= 0 {
		l.Disk = 10 << 30
	}
	if l.DiskFree <= 0 {
		l.DiskFree = 256 << 20
	}
	return l
}

// How often the watch looks. Processes are counted more and more rarely while
// their number stays the same, and what takes long is done more rarely too, so
// that watching stays below a twentieth of one processor, and far below for a
// job that waits.
const (
	countEvery = 50 * time.Millisecond
	countMost  = 400 * time.Millisecond
	freeEvery  = 500 * time.Millisecond
	walkEvery  = time.Second
	walkMost   = time.Minute
	watchShare = 20
)

// watch tells the supervisor which limit its tree breaks. Processes are counted
// by the supervisor's own loop, bytes by a goroutine, since a walk may take long.
type watch struct {
	root   string
	limits Limits
	count  *time.Timer
	every  time.Duration // until the next count
	last   int           // processes at the last count
	disk   chan string   // a broken limit, at most one
	quit   chan struct{} // ends the goroutine
	ended  chan struct{}
}

func newWatch(root string, l Limits) *watch {
	w := &watch{
		root: root, limits: l.withDefaults(), count: time.NewTimer(countEvery),
		disk: make(chan string, 1), quit: make(chan struct{}), ended: make(chan struct{}),
	}
	go w.watchDisk()
	return w
}

func (w *watch) stop() {
	w.count.Stop()
	close(w.quit)
	<-w.ended
}

// due fires when check is to be called, or, while the tree dies, the kill to be repeated.
func (w *watch) due() <-chan time.Time { return w.count.C }

// again makes due fire after d.
func (w *watch) again(d time.Duration) { w.count.Reset(d) }

// check counts the tree and says which limit it breaks, if it does.
func (w *watch) check() string {
	began := time.Now()
	n := len(descendants(os.Getpid(), w.limits.Processes))
	if w.every = min(2*w.every, countMost); n != w.last {
		w.every, w.last = countEvery, n
	}
	w.count.Reset(max(w.every, watchShare*time.Since(began)))
	if n > w.limits.Processes {
		return fmt.Sprintf("killed: more than %d processes", w.limits.Processes)
	}
	return ""
}

// watchDisk walks the directory now and then, sooner when the file system's
// free space falls quickly.
func (w *watch) watchDisk() {
	defer close(w.ended)
	tick := time.NewTicker(freeEvery)
	defer tick.Stop()
	var next time.Time
	var seen int64 // free bytes at the last walk
	for {
		select {
		case <-w.quit:
			return
		case <-tick.C:
		}
		free, err := diskFree(w.root)
		if err != nil || time.Now().Before(next) && free >= w.limits.DiskFree && seen-free < w.limits.Disk/watchShare {
			continue
		}
		began := time.Now()
		used, err := w.walk()
		seen, next = free, began.Add(min(walkMost, max(walkEvery, watchShare*time.Since(began))))
		if broken := w.judge(used, free, err); broken != "" {
			w.disk <- broken
			return
		}
	}
}

func (w *watch) judge(used, free int64, err error) string {
	switch {
	case err != nil:
		return fmt.Sprintf("killed: its working directory cannot be measured: %v", err)
	case used > w.limits.Disk:
		return fmt.Sprintf("killed: more than %d bytes in its working directory", w.limits.Disk)
	case free < w.limits.DiskFree && used >= w.limits.Disk/16:
		return fmt.Sprintf("killed: fewer than %d bytes are free on the agent's disk, and it holds %d", w.limits.DiskFree, used)
	}
	return ""
}

var errEnough = errors.New("enough was counted")

// walk adds up what is below the root; it stops early once that is too much.
func (w *watch) walk() (int64, error) {
	var used int64
	shared := map[uint64]bool{}
	err := filepath.WalkDir(w.root, func(_ string, d fs.DirEntry, err error) error {
		select {
		case <-w.quit:
			return errEnough
		default:
		}
		if gone(err) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if gone(err) {
			return nil
		}
		if err != nil {
			return err
		}
		bytes, inode, other := diskUse(info)
		if other && shared[inode] {
			return nil
		}
		if other {
			shared[inode] = true
		}
		if used += bytes; used > w.limits.Disk {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return used, err
}

// gone tells what a directory in use may answer at any time from what hides
// bytes. What the job forbids itself to read it cannot have filled unseen for
// long: the free space shows it.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}
