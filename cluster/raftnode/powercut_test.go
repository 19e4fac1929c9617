// The power fails at any moment: what the store had promised is there, and the node starts again.

package raftnode

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/disk"
)

// driven starts the driver with a supervised disk.
func driven(t *testing.T, dir string, seed uint64, steps int, faults ...disk.Fault) (*disk.Process, *bytes.Buffer) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envDriverDir+"="+dir, envDriverSeed+"="+strconv.FormatUint(seed, 10), envDriverSteps+"="+strconv.Itoa(steps))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := disk.Start(cmd, dir, faults...)
	require.NoError(t, err)
	return p, &out
}

// promise is what the store had answered when the power failed.
type promise struct {
	term, voteTerm uint64
	candidate      string
	first, last    uint64
	terms          map[uint64]uint64
	snapshot       uint64
	open           step // begun and not answered; its effect may be there or not
}

// promises reads the journal out of the events before the cut.
func promises(events []disk.Event) (promise, error) {
	p := promise{first: 1, terms: map[uint64]uint64{}}
	for _, e := range events {
		if e.Op != disk.Write || e.Path != journalFile || e.Errno != 0 {
			continue
		}
		var s step
		if err := json.Unmarshal(e.Data, &s); err != nil {
			return p, err
		}
		if !s.Done {
			p.open = s
			continue
		}
		p.open = step{}
		switch s.Kind {
		case stepVote:
			p.term = s.Term
			if s.Candidate != "" {
				p.voteTerm, p.candidate = s.Term, s.Candidate
			}
		case stepAppend, stepReplace:
			for i := s.First; i <= s.Last; i++ {
				p.terms[i] = s.Term
			}
			p.last = s.Last
		case stepSnap:
			p.snapshot = s.Last
		case stepCompact:
			p.first = s.Last + 1
		}
	}
	return p, nil
}

// kept reports what of the promise the directory does not hold.
func (p promise) kept(dir string) error {
	cfg := driverConfig(dir)
	if err := cfg.setDefaults(); err != nil {
		return err
	}
	st, err := openStore(cfg)
	if err != nil {
		return fmt.Errorf("the node does not start: %w", err)
	}
	defer st.close()
	if st.found.term < p.term || st.found.term > max(p.term, p.open.Term) {
		return fmt.Errorf("term %d, not %d", st.found.term, p.term)
	}
	if err := p.keptVote(st); err != nil {
		return err
	}
	if p.snapshot > 0 && (st.found.snapshot == nil || st.found.snapshot.Index < p.snapshot) {
		return fmt.Errorf("no snapshot of entry %d", p.snapshot)
	}
	first, last := p.first, p.last
	switch p.open.Kind {
	case stepCompact:
		first = p.open.Last + 1
	case stepReplace:
		last = p.open.First - 1
	}
	for i := first; i <= last; i++ {
		var e raft.Log
		if err := st.log.GetLog(i, &e); err != nil {
			return fmt.Errorf("entry %d of %d to %d: %w", i, first, last, err)
		}
		if want := driverEntry(i, p.terms[i]); e.Term != want.Term || !bytes.Equal(e.Data, want.Data) {
			return fmt.Errorf("entry %d is of term %d, not %d", i, e.Term, want.Term)
		}
	}
	if end := max(p.last, p.open.Last); st.found.last > end {
		return fmt.Errorf("entry %d, though only %d were ever written", st.found.last, end)
	}
	return nil
}

func (p promise) keptVote(st *store) error {
	term, candidate := uint64(0), ""
	if v, err := st.stable.GetUint64([]byte(keyLastVoteTerm)); err == nil {
		term = v
	}
	if v, err := st.stable.Get([]byte(keyLastVoteCand)); err == nil {
		candidate = string(v)
	}
	given := term == p.voteTerm && candidate == p.candidate
	giving := p.open.Candidate != "" && term == p.open.Term // its answer has not left yet
	if !given && !giving {
		return fmt.Errorf("voted in term %d for %q, not in %d for %q", term, candidate, p.voteTerm, p.candidate)
	}
	return nil
}

// cutPower checks so many crash points of a record and returns what was found wrong.
func cutPower(t *testing.T, events []disk.Event, points int, losses []disk.Loss, rng *rand.Rand) (wrong []string, lost int) {
	t.Helper()
	dir := t.TempDir()
	for n := range points {
		at := rng.IntN(len(events) + 1)
		p, err := promises(events[:at])
		require.NoError(t, err)
		for _, loss := range losses {
			to := filepath.Join(dir, fmt.Sprint(n, loss))
			k, err := disk.PowerCut(to, events[:at], loss, rng)
			require.NoError(t, err)
			lost += k
			if err := p.kept(to); err != nil {
				wrong = append(wrong, fmt.Sprintf("%s after %d operations, the last one %v: %v", loss, at, events[max(at, 1)-1], err))
			}
			require.NoError(t, os.RemoveAll(to))
		}
	}
	return wrong, lost
}

// recorded runs the driver to its end.
func recorded(t *testing.T, seed uint64, steps int) []disk.Event {
	t.Helper()
	p, out := driven(t, t.TempDir(), seed, steps)
	require.NoError(t, p.Wait(), "%s", out)
	events := p.Events()
	last, err := promises(events)
	require.NoError(t, err)
	require.NotZero(t, last.last)
	require.NotZero(t, last.voteTerm)
	return events
}

var allLosses = []disk.Loss{disk.Drop, disk.Cut, disk.Tear}

func TestPowerCut(t *testing.T) {
	const seed = 7
	events := recorded(t, seed, 60)
	wrong, lost := cutPower(t, events, 4, allLosses, rand.New(rand.NewPCG(seed, 2)))
	require.Empty(t, wrong)
	require.NotZero(t, lost, "no power cut took anything")
	t.Logf("%d operations recorded, %d lost at 4 crash points", len(events), lost)

	// A store that does not wait for its disk is found out.
	unsynced := slices.DeleteFunc(slices.Clone(events), func(e disk.Event) bool { return e.Op == disk.Sync && strings.HasSuffix(e.Path, storeFile) })
	p, err := promises(unsynced)
	require.NoError(t, err)
	to := t.TempDir()
	_, err = disk.PowerCut(to, unsynced, disk.Drop, rand.New(rand.NewPCG(seed, 3)))
	require.NoError(t, err)
	require.Error(t, p.kept(to))
}

// driveMain is the supervised process' main function.
func driveMain() int {
	run := drive
	if os.Getenv(envNode) != "" {
		run = runNode
	}
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
