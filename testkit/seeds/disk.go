// A disk that is slow, fails or hangs: it stands between a daemon's Raft engine and its log, term and vote, and snapshots.

package seeds

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/forgeyard/forgeyard/cluster/raftnode"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/daemon"
)

// stopping is longer than a daemon takes to stop, whatever hangs.
const stopping = 15 * time.Second

var errDisk = errors.New("the disk fails, as was ordered")

// disk is what the stores of one place in the fleet suffer from, through all incarnations.
type disk struct {
	mu   sync.Mutex
	rnd  *rand.Rand
	slow time.Duration // a write takes up to so much longer
	fail float64       // this share of the writes fails
	hang chan struct{} // writes wait until it closes; nil when they do not
	over time.Time     // when the last hang was over

	slowed, failed, hung int // writes
}

func newDisk(seed uint64, place int) *disk {
	return &disk{rnd: rand.New(rand.NewPCG(seed, uint64(place)))}
}

// below is daemon.Outside.Disk.
func (d *disk) below() daemon.Disk {
	return daemon.Disk{
		Log:       func(log raftnode.Log) raftnode.Log { return sickLog{log, d} },
		Stable:    func(stable raftnode.Stable) raftnode.Stable { return sickStable{stable, d} },
		Snapshots: func(snapshots raftnode.Snapshots) raftnode.Snapshots { return sickSnapshots{snapshots, d} },
	}
}

type sickLog struct {
	raftnode.Log
	disk *disk
}

func (l sickLog) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

func (l sickLog) StoreLogs(entries []*raft.Log) error {
	if err := l.disk.write(); err != nil {
		return err
	}
	return l.Log.StoreLogs(entries)
}

func (l sickLog) DeleteRange(low, high uint64) error {
	if err := l.disk.write(); err != nil {
		return err
	}
	return l.Log.DeleteRange(low, high)
}

// sickStable keeps term and vote.
type sickStable struct {
	raftnode.Stable
	disk *disk
}

func (s sickStable) Set(key, value []byte) error {
	if err := s.disk.write(); err != nil {
		return err
	}
	return s.Stable.Set(key, value)
}

func (s sickStable) SetUint64(key []byte, value uint64) error {
	if err := s.disk.write(); err != nil {
		return err
	}
	return s.Stable.SetUint64(key, value)
}

type sickSnapshots struct {
	raftnode.Snapshots
	disk *disk
}

func (s sickSnapshots) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64, t raft.Transport) (raft.SnapshotSink, error) {
	if err := s.disk.write(); err != nil {
		return nil, err
	}
	sink, err := s.Snapshots.Create(version, index, term, conf, confIndex, t)
	if err != nil {
		return nil, err
	}
	return &sickSink{SnapshotSink: sink, disk: s.disk}, nil
}

type sickSink struct {
	raft.SnapshotSink
	disk   *disk
	closed bool
}

// Close completes the snapshot, or leaves nothing of it; a second time it does nothing.
func (s *sickSink) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	if err := s.disk.write(); err != nil {
		return errors.Join(err, s.Cancel())
	}
	return s.SnapshotSink.Close()
}

// write takes as long as the disk's state demands, and fails when that demands it.
func (d *disk) write() error {
	d.mu.Lock()
	hang, late, fails := d.hang, time.Duration(d.rnd.Float64()*float64(d.slow)), d.rnd.Float64() < d.fail
	switch {
	case hang != nil:
		d.hung++
	case fails:
		d.failed++
	case late > 0:
		d.slowed++
	}
	d.mu.Unlock()
	switch {
	case hang != nil:
		<-hang
		return errDisk
	case fails:
		return errDisk
	case late > 0:
		<-time.After(late)
	}
	return nil
}

// set changes what the disk suffers from.
func (d *disk) set(change func(*disk)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

// hangUp makes every later write wait until release.
func (d *disk) hangUp() {
	d.set(func(d *disk) {
		if d.hang == nil {
			d.hang = make(chan struct{})
		}
	})
}

// release lets the writes that wait fail, and later ones pass.
func (d *disk) release() {
	d.set(func(d *disk) {
		if d.hang != nil {
			close(d.hang)
			d.hang, d.over = nil, time.Now()
		}
	})
}

// counts says how many writes were slow, failed and hung so far.
func (d *disk) counts() (slowed, failed, hung int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.slowed, d.failed, d.hung
}

// hungLately reports whether writes waited while a daemon that has just stopped was stopping.
func (d *disk) hungLately() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hang != nil || time.Since(d.over) < stopping
}

// hanging reports whether writes wait now.
func (d *disk) hanging() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hang != nil
}
