// Prose: sentences for people, folded at words to the terminal's width. A pipe gets them whole.

package cli

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// label is the beginning of a line that says what it is, such as "why: "; what goes on stands under the words after it.
var label = regexp.MustCompile(`^ *[A-Za-z]{2,8}: `)

// prose writes a line as line does, and folds it.
func (p *painter) prose(format string, args ...any) {
	text := p.text(format, args...)
	p.WriteString(wrap(text, p.width, len(label.FindString(text))) + "\n")
}

// hanging is prose of which all lines but the first begin in the given column.
func (p *painter) hanging(column int, format string, args ...any) {
	p.WriteString(wrap(p.text(format, args...), p.width, column) + "\n")
}

// wrap folds one line at blanks, to lines of at most width columns; hang is how
// far all but the first are indented. Width 0 is unlimited, a longer word alone
// takes more, and what fits stays as it is. Colours take no columns.
func wrap(text string, width, hang int) string {
	if width <= 0 || columns(text) <= width {
		return text
	}
	indent := strings.Repeat(" ", min(hang, width/3))
	var b strings.Builder
	column, words := 0, 0 // of the line that is written
	for rest := text; rest != ""; {
		word := strings.TrimLeft(rest, " ")
		blanks := rest[:len(rest)-len(word)]
		if end := strings.IndexByte(word, ' '); end >= 0 {
			word = word[:end]
		}
		rest = rest[len(blanks)+len(word):]
		if words > 0 && column+len(blanks)+columns(word) > width {
			b.WriteString("\n")
			blanks, column, words = indent, 0, 0
		}
		b.WriteString(blanks + word)
		column, words = column+len(blanks)+columns(word), words+1
	}
	return b.String()
}

// columns is how much of a line a text takes.
func columns(text string) int { return utf8.RuneCountInString(sgr.ReplaceAllString(text, "")) }
