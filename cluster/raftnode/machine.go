// The state machine behind the library: decodes, applies, publishes immutable views; gives up for good at what it does not know.

package raftnode

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// machine is the raft.FSM and its raft.ConfigurationStore. The library calls it
// from one goroutine; everything readers touch is an atomic pointer.
type machine struct {
	state   *fsm.State
	stopped error // set at the first entry that cannot be applied; nothing is applied after it

	view       atomic.Pointer[fsm.View]
	configured atomic.Pointer[configuration] // the newest committed one, nil while unknown
	passed     atomic.Uint64                 // every entry up to this index has been applied; it only rises
	busy       timer                         // since when the library waits for Apply
	now        func() time.Time

	// Set before the library starts.
	published func(fsm.View)
	giveUp    func(*cluster.Error)
	caughtUp  func(index uint64)                // called when passed has risen to index
	before    func()                            // called first in Apply
	hashed    func(index uint64, hash [32]byte) // called after every change of the state; may be nil
}

// configuration is a committed one, with the index of its entry.
type configuration struct {
	index    uint64
	suffrage Suffrage
}

// applied is what Apply hands back to the proposer.
type applied struct {
	commit cluster.Commit
	err    error
}

// newMachine starts with the view that restored is known to have been committed:
// the library itself learns what is committed only from the next leader.
func newMachine(restored *fsm.State, now func() time.Time) *machine {
	m := &machine{state: fsm.NewState(), now: now}
	v := restored.View()
	m.view.Store(&v)
	m.passed.Store(v.Index)
	return m
}

// current is the newest committed view.
func (m *machine) current() fsm.View { return *m.view.Load() }

// publish makes the state visible, unless the restored view is still ahead of the replay.
func (m *machine) publish() {
	v := m.state.View()
	if v.Index < m.view.Load().Index {
		return
	}
	m.view.Store(&v)
	m.published(v)
}

// tell hands the state's hash to a harness.
func (m *machine) tell() {
	if m.hashed != nil {
		m.hashed(m.state.View().Index, m.state.Hash())
	}
}

// pass notes that everything up to index has been applied. The library shows
// this machine commands and configurations only: what else it commits counts
// once a barrier behind it has passed.
func (m *machine) pass(index uint64) {
	if raise(&m.passed, index) {
		m.caughtUp(index)
	}
}

// Apply implements raft.FSM.
func (m *machine) Apply(entry *raft.Log) any {
	m.busy.start(m.now())
	defer m.busy.stop()
	m.before()
	if m.stopped != nil {
		return applied{err: m.stopped}
	}
	p, err := fsm.DecodeProposal(entry.Data)
	if err != nil {
		// Skipping it would let this replica diverge from those that know it (§151).
		e := cluster.ErrNewerBuild.Wrap(err, "entry %d of term %d cannot be read by this build", entry.Index, entry.Term)
		m.stopped = e
		m.giveUp(e)
		return applied{err: e}
	}
	res, err := m.state.Apply(entry.Index, entry.Term, p)
	m.tell()
	m.publish()
	m.pass(entry.Index)
	var rejected *fsm.Rejection
	if errors.As(err, &rejected) {
		err = cluster.FromRejection(rejected)
	}
	return applied{commit: cluster.Commit{Result: res, Index: entry.Index, Term: entry.Term}, err: err}
}

// StoreConfiguration implements raft.ConfigurationStore: it is called for every
// committed configuration entry.
func (m *machine) StoreConfiguration(index uint64, c raft.Configuration) {
	m.configure(&configuration{index: index, suffrage: suffrageOf(c)})
	if m.stopped == nil {
		m.pass(index)
	}
}

func (m *machine) configure(c *configuration) {
	for {
		old := m.configured.Load()
		if old != nil && c.index <= old.index || m.configured.CompareAndSwap(old, c) {
			return
		}
	}
}

// configuredAt is the index of the newest committed configuration entry, 0 while unknown.
func (m *machine) configuredAt() uint64 {
	if c := m.configured.Load(); c != nil {
		return c.index
	}
	return 0
}

// raise reports whether it made x larger.
func raise(x *atomic.Uint64, to uint64) bool {
	for {
		old := x.Load()
		if to <= old {
			return false
		}
		if x.CompareAndSwap(old, to) {
			return true
		}
	}
}

// Snapshot implements raft.FSM. The state is small enough to encode at once.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.stopped != nil {
		return nil, m.stopped // the log behind an entry that was not applied must stay
	}
	b, err := m.state.EncodeSnapshot()
	if err != nil {
		return nil, err
	}
	return encoded{bytes: b, hash: m.state.Hash()}, nil
}

// Restore implements raft.FSM.
func (m *machine) Restore(r io.ReadCloser) error {
	state, err := readSnapshot(r)
	if errors.Is(err, fsm.ErrIncompatible) {
		m.giveUp(cluster.ErrNewerBuild.Wrap(err, "the snapshot cannot be read by this build"))
	}
	if err != nil {
		return err
	}
	m.state = state
	m.tell()
	m.publish()
	// Its configuration, which came with it, may be a later entry than its last command.
	m.pass(max(state.View().Index, m.configuredAt()))
	return nil
}

// encoded is a snapshot ready to be written.
type encoded struct {
	bytes []byte
	hash  [32]byte
}

// Persist implements raft.FSMSnapshot. The bytes are restored into a scratch
// state first: a snapshot that cannot be read back must not let the log be
// truncated behind it.
func (e encoded) Persist(sink raft.SnapshotSink) error {
	err := e.verify()
	if err == nil {
		_, err = sink.Write(e.bytes)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("snapshot %s: %w", sink.ID(), err), sink.Cancel())
	}
	return sink.Close()
}

func (e encoded) verify() error {
	state, err := fsm.DecodeSnapshot(e.bytes)
	if err != nil {
		return err
	}
	if state.Hash() != e.hash {
		return errors.New("it reads back as a different state")
	}
	return nil
}

// Release implements raft.FSMSnapshot.
func (encoded) Release() {}
