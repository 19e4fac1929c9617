// Lines of logs: as they are in a pipe, tamed on a terminal, named by job when there are several, or as documents.

package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"
)

// LogLine is one line of a log, as -o json and yaml give it: one document per line.
type LogLine struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Run        string `json:"run"`
	Job        string `json:"job"`
	Attempt    int    `json:"attempt"`
	Text       string `json:"text"` // bad UTF-8 replaced
}

// logPrinter puts the logs of several jobs on one output, line by line.
type logPrinter struct {
	app   *app
	run   string
	width int // of the job's name before each line; 0 for none
	mu    sync.Mutex
}

// newLogPrinter prepares for the jobs that may be shown.
func (a *app) newLogPrinter(run string, jobs []string) *logPrinter {
	p := &logPrinter{app: a, run: run}
	if len(jobs) > 1 {
		for _, j := range jobs {
			p.width = max(p.width, len([]rune(clean(j))))
		}
	}
	return p
}

// verbatim tells whether bytes go out just as they came.
func (p *logPrinter) verbatim() bool {
	return p.width == 0 && !p.app.io.OutTTY && !p.app.structured()
}

// log is where the log of one attempt is written. Close ends its last line.
func (p *logPrinter) log(job string, attempt int) io.WriteCloser {
	return &logLines{p: p, job: job, attempt: attempt}
}

// structured tells whether documents are wanted.
func (a *app) structured() bool { return a.format == formatJSON || a.format == formatYAML }

// logLines cuts one log into lines.
type logLines struct {
	p       *logPrinter
	job     string
	attempt int
	rest    []byte // of a line whose end has not come
	open    bool   // a part of the line is shown already
}

// maxLogLine is after how many bytes a line without an end is shown as it is.
const maxLogLine = 64 << 10

func (l *logLines) Write(b []byte) (int, error) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.p.verbatim() {
		return l.p.app.io.Out.Write(b)
	}
	l.rest = append(l.rest, b...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 && len(l.rest) < maxLogLine {
			break
		}
		if i < 0 {
			i = len(l.rest) - 1
		}
		if err := l.line(l.rest[:i+1]); err != nil {
			return 0, err
		}
		l.rest = l.rest[i+1:]
	}
	return len(b), l.eager()
}

// eager shows a line's beginning when only one log is shown: dots and prompts are waited for.
func (l *logLines) eager() error {
	if l.p.width > 0 || l.p.app.structured() || len(l.rest) == 0 || bytes.ContainsAny(l.rest, "\x1b\r") || !utf8.Valid(l.rest) {
		return nil
	}
	part := l.rest
	l.rest, l.open = nil, true
	_, err := io.WriteString(l.p.app.io.Out, tame(string(part), false))
	return err
}

// Close shows what is left of the last line.
func (l *logLines) Close() error {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if len(l.rest) == 0 && !l.open {
		return nil
	}
	return l.line(l.rest)
}

func (l *logLines) line(raw []byte) error {
	a := l.p.app
	text := strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r")
	if a.structured() {
		doc := LogLine{APIVersion: apiVersion, Kind: "LogLine", Run: l.p.run, Job: l.job, Attempt: l.attempt, Text: strings.ToValidUTF8(text, "\ufffd")}
		return a.document(doc)
	}
	l.open = false
	p := a.painter()
	if a.io.OutTTY {
		text = tame(text, p.colour)
	}
	prefix := ""
	if l.p.width > 0 {
		name := clean(l.job)
		prefix = p.paint(cell{name, "36"}) + strings.Repeat(" ", l.p.width-len([]rune(name))) + " | "
	}
	for part := range strings.SplitSeq(text, "\n") {
		p.WriteString(prefix + part + "\n")
	}
	_, err := io.WriteString(a.io.Out, p.String())
	return err
}

// document writes one of several documents: JSON one per line, YAML one after a ---.
func (a *app) document(doc any) error {
	if a.format == formatYAML {
		if _, err := io.WriteString(a.io.Out, "---\n"); err != nil {
			return err
		}
		return writeYAML(a.io.Out, doc)
	}
	b, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	_, err = a.io.Out.Write(append(b, '\n'))
	return err
}

var sgr = regexp.MustCompile("\x1b\\[[0-9;:]*m")

// tame lets a job colour its lines, if colour is welcome, and nothing else:
// it cannot move the cursor, set a title or overwrite what was said.
func tame(text string, colour bool) string {
	text = strings.ReplaceAll(text, "\r", "\n")
	var b strings.Builder
	put := func(s string) {
		for i, part := range strings.Split(s, "\n") {
			if i > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(cleanKeepingTabs(part))
		}
	}
	coloured := false
	for {
		at := sgr.FindStringIndex(text)
		if at == nil {
			put(text)
			break
		}
		put(text[:at[0]])
		if colour {
			b.WriteString(text[at[0]:at[1]])
			coloured = true
		}
		text = text[at[1]:]
	}
	if coloured {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}
