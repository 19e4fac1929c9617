// A trace file: appended without buffering, so that a killed process leaves complete lines only.

package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// maxLine bounds one line of a trace file in bytes.
const maxLine = 64 << 10

// File writes a trace as JSON lines. Several processes may append to one file.
type File struct {
	mu  sync.Mutex
	f   *os.File
	err error // first write error
}

// Open appends to the trace file at path, creating it with mode 0600.
func Open(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open trace: %w", err)
	}
	return &File{f: f}, nil
}

// Trace appends one line by one write. A write error is kept for Close.
func (t *File) Trace(e Event) {
	if e.Mono == 0 {
		e.Mono = Mono(time.Now())
	}
	line, err := json.Marshal(e)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		_, err = t.f.Write(append(line, '\n'))
	}
	if t.err == nil && err != nil {
		t.err = err
	}
}

// Close closes the file and returns the first write error.
func (t *File) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.err, t.f.Close())
}

// Read returns the events of a trace file in file order. A last line without
// its end (the writer was killed) is left out; any other bad line is an error.
func Read(path string) ([]Event, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	defer f.Close()
	return read(f)
}

func read(r io.Reader) ([]Event, error) {
	var events []Event
	in := bufio.NewReaderSize(r, maxLine)
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, fmt.Errorf("trace line %d: %w", n, err)
		}
		var e Event
		if err := json.Unmarshal(bytes.TrimSpace(line), &e); err != nil {
			return events, fmt.Errorf("trace line %d: %w", n, err)
		}
		events = append(events, e)
	}
}
