// The scanner: characters to tokens.

package ron

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokEnd tokenKind = iota
	tokPunct
	tokName
	tokNumber
	tokString
)

type token struct {
	kind tokenKind
	text string // content of a string, else the source text
	span Span
	off  int // offset of its first byte
}

func (t token) is(punct string) bool { return t.kind == tokPunct && t.text == punct }

// describe names the token for an error message.
func (t token) describe() string {
	switch t.kind {
	case tokEnd:
		return "the end of the file"
	case tokString:
		return "a string"
	}
	return "`" + clip(t.text, 40) + "`"
}

type scanner struct {
	doc  *Document
	src  string
	off  int
	line int
	col  int
}

// peek returns the next character, 0 at the end.
func (s *scanner) peek() rune {
	if s.off >= len(s.src) {
		return 0
	}
	r, _ := utf8.DecodeRuneInString(s.src[s.off:])
	return r
}

func (s *scanner) step() rune {
	if s.off >= len(s.src) {
		return 0
	}
	r, n := utf8.DecodeRuneInString(s.src[s.off:])
	s.off += n
	if r == '\n' {
		s.line++
		s.col = 1
	} else {
		s.col++
	}
	return r
}

func (s *scanner) here(length int) Span { return Span{Line: s.line, Col: s.col, Len: length} }

// space skips white space and comments, which nest.
func (s *scanner) space() error {
	for s.off < len(s.src) {
		rest := s.src[s.off:]
		switch {
		case strings.HasPrefix(rest, "//"):
			for s.off < len(s.src) && s.peek() != '\n' {
				s.step()
			}
		case strings.HasPrefix(rest, "/*"):
			start := s.here(2)
			depth := 0
			for {
				rest = s.src[s.off:]
				switch {
				case rest == "":
					return s.doc.errorAt(start, "this comment is never closed with `*/`")
				case strings.HasPrefix(rest, "/*"):
					depth++
					s.step()
				case strings.HasPrefix(rest, "*/"):
					depth--
					s.step()
				}
				s.step()
				if depth == 0 {
					break
				}
			}
		case unicode.IsSpace(s.peek()):
			s.step()
		default:
			return nil
		}
	}
	return nil
}

func (s *scanner) next() (token, error) {
	if err := s.space(); err != nil {
		return token{}, err
	}
	t := token{span: s.here(1), off: s.off}
	rest := s.src[s.off:]
	c := s.peek()
	switch {
	case rest == "":
		t.kind, t.span.Len = tokEnd, 1
		return t, nil
	case c == '"':
		return s.quoted(t)
	case c == '\'':
		return s.char(t)
	case rest[0] == 'r' && len(rest) > 1 && (rest[1] == '"' || rest[1] == '#' && isRaw(rest[1:])):
		return s.raw(t)
	case strings.ContainsRune("()[]{}:,#!", c):
		t.kind, t.text = tokPunct, string(s.step())
		return t, nil
	case c == '+' || c == '-' || c == '.' || c >= '0' && c <= '9':
		t.kind = tokNumber
		s.word(&t, func(r, before rune) bool {
			return r == '+' || r == '-' && (before == 'e' || before == 'E' || before == 0) || r == '.' || isName(r)
		})
		return t, nil
	case isName(c):
		t.kind = tokName
		s.word(&t, func(r, _ rune) bool { return isName(r) })
		return t, nil
	}
	return t, s.doc.errorAt(t.span, "unexpected character %q", c)
}

// isRaw tells r#"…"# from a name followed by #.
func isRaw(rest string) bool { return strings.HasPrefix(strings.TrimLeft(rest, "#"), "\"") }

func isName(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// word takes characters while ok says so and sets the token's text and length.
func (s *scanner) word(t *token, ok func(r, before rune) bool) {
	var before rune
	for s.off < len(s.src) && ok(s.peek(), before) {
		before = s.step()
	}
	t.text = s.src[t.off:s.off]
	t.span.Len = utf8.RuneCountInString(t.text)
}

func (s *scanner) quoted(t token) (token, error) {
	t.kind = tokString
	s.step()
	var b strings.Builder
	for {
		at := s.here(1)
		if s.off >= len(s.src) {
			return t, s.doc.errorAt(t.span, "this string is never closed with `\"`")
		}
		switch c := s.step(); c {
		case '"':
			t.text = b.String()
			t.span.Len = lengthOnLine(t.span, s)
			return t, nil
		case '\\':
			if err := s.escape(&b, at); err != nil {
				return t, err
			}
		default:
			b.WriteRune(c)
		}
	}
}

// lengthOnLine is how much of a token that just ended lies on its first line.
func lengthOnLine(start Span, s *scanner) int {
	if s.line != start.Line {
		return 1
	}
	return s.col - start.Col
}

func (s *scanner) char(t token) (token, error) {
	t.kind = tokString
	s.step()
	var b strings.Builder
	at := s.here(1)
	if c := s.step(); c == '\\' {
		if err := s.escape(&b, at); err != nil {
			return t, err
		}
	} else if c != 0 && c != '\'' && c != '\n' {
		b.WriteRune(c)
	}
	if b.Len() == 0 || s.step() != '\'' {
		return t, s.doc.errorAt(t.span, "a character is written 'c'; write a string with double quotes")
	}
	t.text = b.String()
	t.span.Len = lengthOnLine(t.span, s)
	return t, nil
}

func (s *scanner) raw(t token) (token, error) {
	t.kind = tokString
	s.step() // r
	hashes := 0
	for s.peek() == '#' {
		s.step()
		hashes++
	}
	s.step() // the opening quote
	end := "\"" + strings.Repeat("#", hashes)
	n := strings.Index(s.src[s.off:], end)
	if n < 0 {
		return t, s.doc.errorAt(t.span, "this raw string is never closed with `%s`", clip(end, 20))
	}
	t.text = s.src[s.off : s.off+n]
	for stop := s.off + n + len(end); s.off < stop; {
		s.step()
	}
	t.span.Len = lengthOnLine(t.span, s)
	return t, nil
}

// escape reads what follows a backslash: RON's escapes, which include JSON's.
func (s *scanner) escape(b *strings.Builder, at Span) error {
	at.Len = 2
	simple := map[rune]rune{'n': '\n', 'r': '\r', 't': '\t', 'b': '\b', 'f': '\f', '0': 0, '\\': '\\', '"': '"', '\'': '\'', '/': '/'}
	c := s.step()
	if r, ok := simple[c]; ok {
		b.WriteRune(r)
		return nil
	}
	var digits string
	switch {
	case c == 'x':
		digits = s.take(2)
	case c == 'u' && s.peek() == '{':
		s.step()
		for s.off < len(s.src) && s.peek() != '}' && len(digits) < 8 {
			digits += string(s.step())
		}
		if s.step() != '}' {
			return s.doc.errorAt(at, "write a Unicode escape as \\u{1F600}")
		}
	case c == 'u':
		digits = s.take(4)
	default:
		return s.doc.errorAt(at, "unknown escape \\%c; write \\\\ for a backslash, or a raw string r\"…\"", c)
	}
	at.Len = s.col - at.Col
	n, err := strconv.ParseUint(digits, 16, 32)
	if err != nil {
		return s.doc.errorAt(at, "this escape is not a character")
	}
	r := rune(n)
	if r >= 0xD800 && r < 0xDC00 && strings.HasPrefix(s.src[s.off:], `\u`) { // JSON writes a high surrogate and its low half
		s.step()
		s.step()
		low, err := strconv.ParseUint(s.take(4), 16, 32)
		if err != nil || low < 0xDC00 || low > 0xDFFF {
			return s.doc.errorAt(at, "this escape is half of a surrogate pair")
		}
		r = 0x10000 + (r-0xD800)<<10 + (rune(low) - 0xDC00)
	}
	if !utf8.ValidRune(r) {
		return s.doc.errorAt(at, "this escape is not a character")
	}
	b.WriteRune(r)
	return nil
}

func (s *scanner) take(n int) string {
	start := s.off
	for ; n > 0 && s.off < len(s.src) && s.peek() != '\n'; n-- {
		s.step()
	}
	return s.src[start:s.off]
}
