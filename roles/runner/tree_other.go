// The process tree where nothing adopts orphans: a step's group is killed, what left it is not found.

//go:build !linux

package runner

import (
	"os"
	"syscall"
	"time"
)

func becomeAncestor() error { return nil }

func fork(start func() (int, error)) (int, error) { return start() }

func stepAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// untilMono cannot compare clocks of two processes here: the agent alone enforces the deadline.
func untilMono(int64) time.Duration { return 365 * 24 * time.Hour }

func killTree() {}

func descendants(int, int) map[int]bool { return nil }

func killMarked(string, time.Duration) error { return nil }

func diskUse(info os.FileInfo) (bytes int64, inode uint64, shared bool) { return info.Size(), 0, false }

func diskFree(dir string) (int64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return int64(fs.Bavail) * int64(fs.Bsize), nil
}
