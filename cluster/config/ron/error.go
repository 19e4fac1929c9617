// Errors that show the line and point at the place, and suggestions for misspelt names.

package ron

import (
	"fmt"
	"strings"
	"unicode"
)

// Error is a fault at one place of a document.
type Error struct {
	File    string // as given to Parse
	Span    Span
	Message string
	Source  string // the line of Span, cleaned for a terminal
	Caret   string // what to print under Source
}

// Error is the message in full: place, text, the source line and a caret under the fault.
func (e *Error) Error() string {
	if e.Span.Line == 0 {
		return e.Summary()
	}
	n := fmt.Sprint(e.Span.Line)
	return fmt.Sprintf("%s\n  %s | %s\n  %s | %s", e.Summary(), n, e.Source, strings.Repeat(" ", len(n)), e.Caret)
}

// Summary is the first line of Error.
func (e *Error) Summary() string {
	if e.Span.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Span.Line, e.Span.Col, e.Message)
}

// Document is the source that values point into.
type Document struct {
	File string
	src  string
}

// maxShown is how many characters of a source line an error shows.
const maxShown = 100

func (d *Document) errorAt(s Span, format string, args ...any) error {
	e := &Error{Span: s, Message: fmt.Sprintf(format, args...)}
	if d == nil {
		e.File = "value"
		e.Span = Span{}
		return e
	}
	e.File = d.File
	if s.Line == 0 {
		return e
	}
	line := []rune(d.line(s.Line))
	from, col := 0, s.Col-1
	if len(line) > maxShown && col > maxShown/2 {
		from = min(col-maxShown/2, max(0, len(line)-maxShown))
	}
	shown := line[min(from, len(line)):min(from+maxShown, len(line))]
	pad := make([]rune, 0, maxShown)
	for i := range shown {
		if shown[i] == '\t' {
			if i < col-from {
				pad = append(pad, '\t') // a tab under a tab keeps the caret in place
			}
			continue
		}
		if unicode.IsControl(shown[i]) || unicode.In(shown[i], unicode.Cf) {
			shown[i] = '?' // nothing from a file may steer the terminal
		}
		if i < col-from {
			pad = append(pad, ' ')
		}
	}
	e.Source = string(shown)
	width := max(1, min(s.Len, len(shown)-(col-from)))
	e.Caret = string(pad) + strings.Repeat("^", width)
	return e
}

func (d *Document) line(n int) string {
	rest := d.src
	for ; n > 1; n-- {
		_, after, ok := strings.Cut(rest, "\n")
		if !ok {
			return ""
		}
		rest = after
	}
	rest, _, _ = strings.Cut(rest, "\n")
	return strings.TrimSuffix(rest, "\r")
}

// Suggest returns the candidate that a misspelt name most likely meant, "" when none is near.
func Suggest(name string, candidates []string) string {
	best, bestCost := "", max(1, len(name)/3)+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), strings.ToLower(c)); d < bestCost {
			best, bestCost = c, d
		}
	}
	return best
}

// distance is the number of edits (a swap of neighbours counts as one) between two short names.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	before := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}

func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n]) + "…"
}
