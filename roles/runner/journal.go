// What an agent remembers across restarts: the highest order it has seen and every lease it ever started.

package runner

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/forgeyard/forgeyard/cluster/seal"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/migrations/mutant"
)

// StartsFile is the agent's own log of what it did, in its directory: JSON
// lines of Entry, each with a checksum. Checkers read it; so does the agent when it starts again.
const StartsFile = "starts.jsonl"

// OldStartsFile is what StartsFile was before it last grew too long. Only people and checkers read it.
const OldStartsFile = "starts.old.jsonl"

// maxEntry bounds a line of StartsFile, in bytes: no entry comes near it, and a
// file of anything else must not become memory.
const maxEntry = 1 << 20

// defaultJournalLimit is some 15 MB of entries.
const defaultJournalLimit = 50_000

const (
	highWaterFile = "highwater.json"
	lockFile      = "lock"
)

// EntryKind says what an Entry records.
type EntryKind string

// The kinds of entry. Dispatch: an order was accepted. Start: about to execute
// (written and synced before). Finish: execution ended. Close: a daemon
// acknowledged or refused the result, so nobody will ask for it again.
const (
	EntryDispatch EntryKind = "dispatch"
	EntryStart    EntryKind = "start"
	EntryFinish   EntryKind = "finish"
	EntryClose    EntryKind = "close"
)

// Entry is one line of StartsFile.
type Entry struct {
	What       EntryKind      `json:"what"`
	Lease      string         `json:"lease"`
	Job        string         `json:"job,omitempty"`
	Attempt    int            `json:"attempt,omitempty"`
	Epoch      fsm.Epoch      `json:"epoch,omitempty"` // of the order, not of the lease
	Generation fsm.Generation `json:"generation,omitempty"`
	Mono       int64          `json:"mono_ns"` // CLOCK_MONOTONIC based: comparable between processes of one machine
	Wall       time.Time      `json:"wall"`
	Outcome    Outcome        `json:"outcome,omitempty"` // Finish only; empty when it was given up
	ExitCode   *int           `json:"exit_code,omitempty"`
	Duration   time.Duration  `json:"duration_ns,omitempty"`
	Reason     string         `json:"reason,omitempty"`
	LogBytes   int64          `json:"log_bytes,omitempty"`
}

// mark is the highest order seen of one role.
type mark struct {
	Generation fsm.Generation `json:"generation"`
	Epoch      fsm.Epoch      `json:"epoch"`
}

func (m mark) below(o mark) bool {
	return m.Generation < o.Generation || m.Generation == o.Generation && m.Epoch < o.Epoch
}

// journal is safe for concurrent use. One process has it open at a time.
type journal struct {
	dir string

	mu      sync.Mutex
	lock    *os.File
	starts  *os.File
	high    map[fsm.Role]mark
	started map[string]bool // every lease that was started and can still be offered
	open    map[string]Entry
	limit   int   // of entries
	entries int   // in the file
	next    int   // the number of entries at which it is cut
	broken  error // the first failed write: a half-written line must stay the last one
}

// openJournal takes the directory for this process and reads what an earlier
// one left: open holds, for every started lease that was not closed, its Finish
// entry or else its Start entry.
//
// Once it has more than limit entries (0: the default), and where an earlier build
// wrote some without a checksum, closed leases are put aside. They need no memory:
// a closed lease has ended in the database, or the reason why it was given up stands
// there, so it is not offered again, and a stale offer of one is answered but never granted.
func openJournal(dir string, limit int) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("agent directory: %w", err)
	}
	if limit <= 0 {
		limit = defaultJournalLimit
	}
	j := &journal{dir: dir, limit: limit, next: limit, high: map[fsm.Role]mark{}, started: map[string]bool{}, open: map[string]Entry{}}
	var err error
	// The lock proves that the process whose leases this one gives up is gone.
	if j.lock, err = os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, fmt.Errorf("agent directory: %w", err)
	}
	if err := syscall.Flock(int(j.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = j.lock.Close()
		return nil, fmt.Errorf("agent directory %s is in use by another agent process: %w", dir, err)
	}
	sealed, err := j.readHigh()
	if err == nil { // it cuts a torn line off, which a directory that is refused keeps
		err = j.readStarts()
	}
	if err != nil {
		_ = j.lock.Close()
		return nil, err
	}
	if err := j.openStarts(); err != nil {
		_ = j.lock.Close()
		return nil, err
	}
	err = j.shorten()
	if err == nil && !sealed { // an earlier build's marks: a changed digit would be another mark
		err = j.writeHigh()
	}
	if err != nil {
		return nil, errors.Join(err, j.close())
	}
	return j, nil
}

func (j *journal) openStarts() error {
	f, err := os.OpenFile(filepath.Join(j.dir, StartsFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("agent journal: %w", err)
	}
	j.starts = f
	return nil
}

// shorten cuts a file that has grown too long down to the leases that are not
// closed. At every moment a whole file has the name.
func (j *journal) shorten() error {
	if j.entries <= j.next {
		return nil
	}
	var kept []byte
	for _, e := range j.open {
		line, err := encodeLine(e)
		if err != nil {
			return fmt.Errorf("agent journal: %w", err)
		}
		kept = append(kept, line...)
	}
	path, aside := filepath.Join(j.dir, StartsFile), filepath.Join(j.dir, OldStartsFile)
	if err := os.Remove(aside); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("agent journal: %w", err)
	}
	if err := errors.Join(os.Link(path, aside), replaceFile(path, kept), j.starts.Close()); err != nil {
		return fmt.Errorf("agent journal: %w", err)
	}
	j.started = make(map[string]bool, len(j.open))
	for lease := range j.open {
		j.started[lease] = true
	}
	j.entries, j.next = len(j.open), max(j.limit, 2*len(j.open))
	return j.openStarts()
}

// failed returns the error that broke the journal, if one did.
func (j *journal) failed() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.broken
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return errors.Join(j.starts.Close(), j.lock.Close())
}

// readHigh also tells whether the marks that are there have a checksum.
func (j *journal) readHigh() (sealed bool, err error) {
	path := filepath.Join(j.dir, highWaterFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("agent high-water mark: %w", err)
	}
	line, sealed, err := seal.Open(b)
	if err == nil {
		err = json.Unmarshal(line, &j.high)
	}
	if err == nil && j.high == nil { // "null"
		err = errors.New("it holds no marks")
	}
	if err != nil {
		return sealed, ErrDirDamaged.Wrap(err, "the agent's high-water mark %s is damaged", path)
	}
	return sealed, nil
}

func (j *journal) readStarts() error {
	f, err := os.OpenFile(filepath.Join(j.dir, StartsFile), os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("agent journal: %w", err)
	}
	defer f.Close()
	var whole int64
	anySealed, anyPlain := false, false
	for r := bufio.NewReaderSize(f, maxEntry); ; {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			// A line without its end was cut by a crash before its sync, so nothing relied on it.
			if err := f.Truncate(whole); err != nil {
				return fmt.Errorf("agent journal: %w", err)
			}
			if anyPlain {
				j.next = 0 // written again, with checksums
			}
			return nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			return ErrDirDamaged.Wrap(nil, "the agent's journal %s holds something else from byte %d on: no entry is longer than %d bytes", f.Name(), whole, maxEntry)
		}
		if err != nil {
			return fmt.Errorf("agent journal: %w", err)
		}
		e, sealed, err := decodeLine(line[:len(line)-1])
		if err == nil && anySealed && !sealed {
			err = errUnsealed
		}
		if err != nil {
			return ErrDirDamaged.Wrap(err, "the agent's journal %s is damaged at byte %d", f.Name(), whole)
		}
		anySealed, anyPlain = anySealed || sealed, anyPlain || !sealed
		whole += int64(len(line))
		j.note(e)
	}
}

func (j *journal) note(e Entry) {
	j.entries++
	switch e.What {
	case EntryStart, EntryFinish:
		j.started[e.Lease] = true
		j.open[e.Lease] = e
	case EntryClose:
		delete(j.open, e.Lease)
	}
}

// write appends one entry and, when the agent's next act relies on it, syncs it.
func (j *journal) write(e Entry, sync bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return j.broken
	}
	now := time.Now()
	e.Mono, e.Wall = trace.Mono(now), now.UTC()
	line, err := encodeLine(e)
	if err == nil {
		_, err = j.starts.Write(line)
	}
	if err == nil && sync {
		err = j.starts.Sync()
	}
	if err != nil {
		j.broken = fmt.Errorf("agent journal: %w", err)
		return j.broken
	}
	j.note(e)
	if err := j.shorten(); err != nil {
		j.broken = err
	}
	return j.broken
}

// hasStarted reports whether any process with this directory ever started the lease.
func (j *journal) hasStarted(lease string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.started[lease]
}

// admit reports whether an order may be obeyed. An order above the role's mark
// raises it durably first; newGeneration tells that the generation rose.
func (j *journal) admit(role fsm.Role, m mark) (ok, newGeneration bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	high := j.high[role]
	if m.below(high) && !mutant.Planted(mutant.AgentIgnoresEpochs) {
		return false, false, nil
	}
	if high.below(m) {
		j.high[role] = m
		if err := j.writeHigh(); err != nil {
			j.high[role] = high
			return false, false, err
		}
	}
	return true, m.Generation > high.Generation, nil
}

func (j *journal) writeHigh() error {
	b, err := json.Marshal(j.high)
	if err != nil {
		return fmt.Errorf("agent high-water mark: %w", err)
	}
	if err := replaceFile(filepath.Join(j.dir, highWaterFile), seal.Add(b)); err != nil {
		return fmt.Errorf("agent high-water mark: %w", err)
	}
	return nil
}

// replaceFile makes the new content durable under the name, or leaves the old.
func replaceFile(path string, content []byte) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
