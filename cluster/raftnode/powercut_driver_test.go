// A process that uses the store as the library does and says in a journal what it was promised; its disk is supervised.

package raftnode

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/raft"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/disk"
)

// The driver's orders.
const (
	envDriverDir   = "FORGEYARD_DISK_DIR"
	envDriverSeed  = "FORGEYARD_DISK_SEED"
	envDriverSteps = "FORGEYARD_DISK_STEPS"
)

const journalFile = "journal"

// step is a line of the journal: written before the store is asked, and again with Done after it has answered.
type step struct {
	Kind        string
	First, Last uint64 // entries concerned; a compaction keeps those after Last
	Term        uint64
	Candidate   string
	Done        bool
}

// The kinds of steps.
const (
	stepAppend  = "append"
	stepVote    = "vote"
	stepMark    = "mark"
	stepConfirm = "commit"
	stepReplace = "replace" // the entries from First on are another leader's
	stepSnap    = "snapshot"
	stepCompact = "compact"
	stepReopen  = "reopen"
)

func driverConfig(dir string) Config {
	return Config{
		Self: cluster.Identity{Cluster: fsm.ClusterID{15: 1}, Node: fsm.NodeID{15: 2}, Incarnation: fsm.IncarnationID{15: 3}},
		Dir:  filepath.Join(dir, "raft"), IdentityDir: filepath.Join(dir, "identity"),
	}
}

// driver holds what the library would remember.
type driver struct {
	cfg     Config
	rng     *rand.Rand
	journal *os.File
	ctx     context.Context

	st     *store
	log    *logStore
	stable stableStore
	fsm    *fsm.State

	term, first, last, applied, snapshot uint64
	terms                                map[uint64]uint64
}

// drive is the main function of the supervised process. It fails when the disk does.
func drive(ctx context.Context) error {
	if err := disk.Confine(); err != nil {
		return err
	}
	seed, err := strconv.ParseUint(os.Getenv(envDriverSeed), 10, 64)
	if err != nil {
		return err
	}
	steps, err := strconv.Atoi(os.Getenv(envDriverSteps))
	if err != nil {
		return err
	}
	dir := os.Getenv(envDriverDir)
	d := &driver{cfg: driverConfig(dir), rng: rand.New(rand.NewPCG(seed, 1)), ctx: ctx, fsm: fsm.NewState(), first: 1, terms: map[uint64]uint64{}}
	if err := d.cfg.setDefaults(); err != nil {
		return err
	}
	if d.journal, err = os.OpenFile(filepath.Join(dir, journalFile), os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	if err := d.open(); err != nil {
		return err
	}
	for range steps {
		if err := d.step(); err != nil {
			return err
		}
	}
	return errors.Join(d.st.close(), d.journal.Close())
}

func (d *driver) open() (err error) {
	if d.st, err = openStore(d.cfg); err != nil {
		return err
	}
	failed := func(error) {} // each step returns its error
	d.log = &logStore{LogStore: d.st.log, now: time.Now, broken: failed, failed: failed, wrote: func([]*raft.Log) {}}
	d.stable = stableStore{StableStore: d.st.stable, high: d.st.high, log: d.log, stop: d.ctx}
	return nil
}

// promised runs a step between its two lines.
func (d *driver) promised(s step, do func() error) error {
	line := func() error {
		b, err := json.Marshal(s)
		if err == nil {
			_, err = d.journal.Write(append(b, '\n'))
		}
		return err
	}
	if err := line(); err != nil {
		return err
	}
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", s.Kind, err)
	}
	s.Done = true
	return line()
}

func (d *driver) step() error {
	switch p := d.rng.IntN(100); {
	case d.term == 0 || p < 12:
		return d.vote()
	case p < 60:
		return d.append()
	case p < 72 && d.applied < d.last:
		return d.commit()
	case p < 82 && d.applied < d.last:
		return d.replace()
	case p < 88 && d.applied > d.snapshot:
		return d.takeSnapshot()
	case p < 90:
		return d.install()
	case p < 96:
		return d.promised(step{Kind: stepMark, Last: d.applied}, d.st.high.flush)
	default:
		return d.promised(step{Kind: stepReopen}, func() error { return errors.Join(d.st.close(), d.open()) })
	}
}

func (d *driver) vote() error {
	d.term += 1 + d.rng.Uint64N(2)
	s := step{Kind: stepVote, Term: d.term, Candidate: fmt.Sprint("candidate ", d.rng.IntN(100))}
	return d.promised(s, func() error {
		for _, set := range []func() error{
			func() error { return d.stable.SetUint64([]byte(keyCurrentTerm), s.Term) },
			func() error { return d.stable.SetUint64([]byte(keyLastVoteTerm), s.Term) },
			func() error { return d.stable.Set([]byte(keyLastVoteCand), []byte(s.Candidate)) },
		} {
			if err := set(); err != nil {
				return err
			}
		}
		return nil
	})
}

// The library's own keys for a vote.
const (
	keyLastVoteTerm = "LastVoteTerm"
	keyLastVoteCand = "LastVoteCand"
)

func (d *driver) append() error {
	s := step{Kind: stepAppend, First: d.last + 1, Last: d.last + 1 + d.rng.Uint64N(5), Term: d.term}
	return d.promised(s, func() error { return d.store(s) })
}

func (d *driver) store(s step) error {
	var entries []*raft.Log
	for i := s.First; i <= s.Last; i++ {
		entries = append(entries, driverEntry(i, s.Term))
		d.terms[i] = s.Term
	}
	d.last = s.Last
	return d.log.StoreLogs(entries)
}

// driverEntry is the entry that a leader of the term puts at the index: every fifth is larger than a page.
func driverEntry(index, term uint64) *raft.Log {
	e := &raft.Log{Index: index, Term: term, Type: raft.LogBarrier, Data: make([]byte, 40)}
	switch index % 5 {
	case 0:
		e.Data = make([]byte, 6000)
	case 1, 2:
		var id fsm.RequestID
		binary.BigEndian.PutUint64(id[:], index)
		binary.BigEndian.PutUint64(id[8:], term)
		data, err := fsm.EncodeProposal(fsm.Proposal{Request: id, Command: fsm.SetMaintenance{State: fsm.ReadOnly}})
		if err != nil {
			panic(err)
		}
		e.Type, e.Data = raft.LogCommand, data
		return e
	}
	for i := range e.Data {
		e.Data[i] = byte(index*31 + term*7 + uint64(i))
	}
	return e
}

// commit has the state machine apply some entries, which is what the mark may state.
func (d *driver) commit() error {
	upTo := d.applied + 1 + d.rng.Uint64N(d.last-d.applied)
	return d.promised(step{Kind: stepConfirm, Last: upTo}, func() error {
		for ; d.applied < upTo; d.applied++ {
			var e raft.Log
			if err := d.log.GetLog(d.applied+1, &e); err != nil {
				return err
			}
			if e.Type != raft.LogCommand {
				continue
			}
			p, err := fsm.DecodeProposal(e.Data)
			if err != nil {
				return err
			}
			_, _ = d.fsm.Apply(e.Index, e.Term, p) // refused or not, as a node does
		}
		d.st.high.raiseApplied(d.applied)
		return nil
	})
}

// replace is what a follower does whose uncommitted entries conflict with the leader's.
func (d *driver) replace() error {
	from := d.applied + 1 + d.rng.Uint64N(d.last-d.applied)
	d.term++
	if err := d.promised(step{Kind: stepVote, Term: d.term}, func() error { return d.stable.SetUint64([]byte(keyCurrentTerm), d.term) }); err != nil {
		return err
	}
	s := step{Kind: stepReplace, First: from, Last: from + d.rng.Uint64N(3), Term: d.term}
	return d.promised(s, func() error {
		if err := d.log.DeleteRange(from, d.last); err != nil {
			return err
		}
		return d.store(s)
	})
}

func (d *driver) takeSnapshot() error {
	if err := d.writeSnapshot(d.applied, d.terms[d.applied]); err != nil {
		return err
	}
	keep := d.snapshot - min(d.snapshot, d.rng.Uint64N(8))
	if keep < d.first {
		return nil
	}
	s := step{Kind: stepCompact, First: d.first, Last: keep}
	d.first = keep + 1
	return d.promised(s, func() error { return d.log.DeleteRange(s.First, s.Last) })
}

// install is what a follower does that is sent a snapshot: it takes the place of the whole log.
func (d *driver) install() error {
	index := d.last + 1 + d.rng.Uint64N(10)
	if err := d.writeSnapshot(index, d.term); err != nil {
		return err
	}
	s := step{Kind: stepCompact, First: d.first, Last: index}
	last := d.last
	d.first, d.last, d.applied, d.terms[index] = index+1, index, index, d.term
	d.st.high.raiseApplied(index)
	return d.promised(s, func() error { return d.log.DeleteRange(s.First, last) })
}

func (d *driver) writeSnapshot(index, term uint64) error {
	d.snapshot = index
	return d.promised(step{Kind: stepSnap, Last: index, Term: term}, func() error {
		conf := raft.Configuration{Servers: []raft.Server{{ID: serverID(d.cfg.Self.Node), Address: serverAddress(d.cfg.Self.Node)}}}
		_, transport := raft.NewInmemTransport("")
		sink, err := d.st.snapshots.Create(1, index, term, conf, 1, transport)
		if err != nil {
			return err
		}
		b, err := d.fsm.EncodeSnapshot()
		if err != nil {
			return err
		}
		return encoded{bytes: b, hash: d.fsm.Hash()}.Persist(sink)
	})
}
