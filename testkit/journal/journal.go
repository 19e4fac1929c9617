// Package journal reads what an agent noted of everything that it ever started.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// Read returns the entries of an agent's directory, oldest first, and none when it
// was never given anything. What the agent put aside when its file had grown too
// long comes first; the open leases that it then wrote once more come once. Only
// the last such part is kept: of an agent that has shortened its file twice, the
// oldest entries are gone. A last line without its end is no entry, as it is none
// for the agent. Whoever needs the last entries too stops the agent first, or
// knows that nothing runs.
func Read(dir string) (entries []runner.Entry, err error) {
	aside, err := lines(filepath.Join(dir, runner.OldStartsFile))
	if err != nil {
		return nil, err
	}
	copied := map[string]bool{}
	for _, line := range aside {
		copied[string(line)] = true
	}
	now, err := lines(filepath.Join(dir, runner.StartsFile))
	if err != nil {
		return nil, err
	}
	// The copies stand at the head. Behind them, what is there twice was noted twice.
	for len(now) > 0 && copied[string(now[0])] {
		delete(copied, string(now[0]))
		now = now[1:]
	}
	for _, line := range append(aside, now...) {
		var e runner.Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("the journal in %s: %w", dir, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// lines are those of a file that have an end; of a file that is not there, none.
func lines(file string) (all [][]byte, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		if bytes.HasSuffix(line, []byte("\n")) {
			all = append(all, line)
		}
	}
	return all, nil
}
