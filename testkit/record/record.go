// Package record keeps what chaos runs counted: JSON lines, one for each kind of fault of one run that passed.
package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

// FileEnv names the file of the record, by an absolute path; unset, nothing is kept.
const FileEnv = "FORGEYARD_CHAOS_RECORD"

// SinceEnv names the first commit whose runs count. Unset, those of all commits that
// the present one stands on do.
const SinceEnv = "FORGEYARD_CHAOS_SINCE"

// Count is how often one run made one kind of fault and saw what must follow.
type Count struct {
	At     time.Time `json:"at"`
	Commit string    `json:"commit,omitempty"` // of the product, abbreviated; empty when it is not known
	Suite  string    `json:"suite"`
	Fault  string    `json:"fault"`
	Count  int       `json:"count"`
	Owed   int       `json:"owed"` // over runs, when this was counted; 0 when nothing is claimed
}

// Counts is a list of them.
type Counts []Count

// Append adds the counts of a run to the record.
func (t Counts) Append(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	lines := json.NewEncoder(out)
	for _, c := range t {
		err = errors.Join(err, lines.Encode(c))
	}
	return errors.Join(err, out.Close())
}

// Read reads a record; one that does not exist is empty.
func Read(file string) (t Counts, err error) {
	in, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	defer in.Close()
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		var c Count
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("record: %s line %d: %w", file, n, err)
		}
		t = append(t, c)
	}
	return t, lines.Err()
}

// Sum adds up the runs, by suite and fault in the order in which they first
// appear. What Owed lists is owed, whatever was when they were counted.
func (t Counts) Sum() (sums Counts) {
	at := map[[2]string]int{}
	for _, c := range t {
		key := [2]string{c.Suite, c.Fault}
		i, known := at[key]
		if !known {
			i = len(sums)
			at[key] = i
			sums = append(sums, Count{Suite: c.Suite, Fault: c.Fault, Owed: Owes(c.Suite, c.Fault)})
		}
		sums[i].Count += c.Count
	}
	return sums
}

// Of leaves out what was counted at commits that are not among these; nil keeps everything.
func (t Counts) Of(commits []string) (kept Counts) {
	if commits == nil {
		return t
	}
	for _, c := range t {
		for _, id := range commits {
			if c.Commit != "" && strings.HasPrefix(id, c.Commit) {
				kept = append(kept, c)
				break
			}
		}
	}
	return kept
}

// String is the table of the sums, and says which are below what is owed.
func (t Counts) String() string {
	var b strings.Builder
	out := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, c := range t.Sum() {
		owed := ""
		if c.Owed > 0 {
			owed = fmt.Sprintf("of %d owed", c.Owed)
		}
		if c.Count < c.Owed {
			owed += ": NOT REACHED"
		}
		fmt.Fprintf(out, "%s\t%s\t%d\t%s\n", c.Suite, c.Fault, c.Count, owed)
	}
	_ = out.Flush()
	return b.String()
}
