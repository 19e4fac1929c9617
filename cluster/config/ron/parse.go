// The parser: tokens to values. One token of look-ahead, bounded depth.

package ron

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Parse reads one document of at most MaxSize bytes of UTF-8. file is the name
// that errors show. Its errors are *Error.
func Parse(file string, src []byte) (Value, error) {
	doc := &Document{File: file}
	if len(src) > MaxSize {
		return Value{}, doc.errorAt(Span{}, "the file has more than %d bytes", MaxSize)
	}
	text := strings.TrimPrefix(string(src), "\ufeff")
	doc.src = text
	if !utf8.ValidString(text) {
		line := 1 + slices.IndexFunc(strings.Split(text, "\n"), func(l string) bool { return !utf8.ValidString(l) })
		doc.src = strings.ToValidUTF8(text, "?")
		return Value{}, doc.errorAt(Span{Line: line, Col: 1, Len: 1}, "this line is not UTF-8 text")
	}
	p := &parser{scanner: scanner{doc: doc, src: text, line: 1, col: 1}}
	if err := p.advance(); err != nil {
		return Value{}, err
	}
	if err := p.extensions(); err != nil {
		return Value{}, err
	}
	v, err := p.value(0)
	if err != nil {
		return Value{}, err
	}
	if p.tok.kind != tokEnd {
		return Value{}, doc.errorAt(p.tok.span, "the document has ended before %s", p.tok.describe())
	}
	return v, nil
}

type parser struct {
	scanner
	tok token // the next token
}

func (p *parser) advance() (err error) {
	p.tok, err = p.next()
	return err
}

// extensions skips `#![enable(…)]` lines: the extensions a configuration needs are always on.
func (p *parser) extensions() error {
	for p.tok.is("#") {
		for !p.tok.is("]") {
			if p.tok.kind == tokEnd {
				return p.doc.errorAt(p.tok.span, "expected `]` after #![enable(…)")
			}
			if err := p.advance(); err != nil {
				return err
			}
		}
		if err := p.advance(); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) value(depth int) (Value, error) {
	t := p.tok
	if depth >= MaxDepth {
		return Value{}, p.doc.errorAt(t.span, "values are nested deeper than %d", MaxDepth)
	}
	v := Value{Span: t.span, Text: t.text, doc: p.doc}
	switch {
	case t.kind == tokString:
		v.Kind = String
		return v, p.advance()
	case t.kind == tokNumber:
		v.Kind = Number
		if !validNumber(t.text) {
			return v, p.doc.errorAt(t.span, "`%s` is not a number; write durations, sizes and addresses as strings", clip(t.text, 40))
		}
		return v, p.advance()
	case t.kind == tokName:
		return p.named(v, depth)
	case t.is("["):
		v.Kind = List
		var err error
		v.Items, err = p.items("]", depth)
		return v, err
	case t.is("{"):
		v.Kind = Map
		var err error
		v.Fields, err = p.entries(depth)
		return v, err
	case t.is("("):
		return p.parens(v, depth)
	}
	return v, p.doc.errorAt(t.span, "expected a value, found %s", t.describe())
}

// named reads true, false, inf, NaN, a bare variant, or Name(…).
func (p *parser) named(v Value, depth int) (Value, error) {
	if err := p.advance(); err != nil {
		return v, err
	}
	switch v.Text {
	case "true", "false":
		v.Kind = Bool
		return v, nil
	case "inf", "NaN":
		v.Kind = Number
		return v, nil
	}
	v.Name, v.Text = v.Text, ""
	if p.tok.is("(") {
		return p.parens(v, depth)
	}
	v.Kind = Variant
	return v, nil
}

// parens reads what follows an opening parenthesis: a struct when a name and a
// colon come first, else a tuple. () alone is the unit.
func (p *parser) parens(v Value, depth int) (Value, error) {
	v.Text = ""
	save, tok := p.scanner, p.tok
	if err := p.advance(); err != nil {
		return v, err
	}
	if p.tok.is(")") {
		v.Kind = Struct // Name() and () decode as a struct without fields, or as a unit
		return v, p.advance()
	}
	isStruct := false
	if p.tok.kind == tokName {
		if err := p.advance(); err != nil {
			return v, err
		}
		// `(mode Distributed)` lacks a colon: as a struct, it is told so.
		isStruct = p.tok.is(":") || p.tok.kind == tokName || p.tok.kind == tokString || p.tok.kind == tokNumber
	}
	p.scanner, p.tok = save, tok
	var err error
	if isStruct {
		v.Kind = Struct
		v.Fields, err = p.fields(depth)
	} else {
		v.Kind = Tuple
		v.Items, err = p.items(")", depth)
	}
	return v, err
}

// items reads values up to the closing bracket.
func (p *parser) items(closing string, depth int) ([]Value, error) {
	open := p.tok
	if err := p.advance(); err != nil {
		return nil, err
	}
	var items []Value
	for !p.tok.is(closing) {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, p.unclosed(open, closing, err)
		}
		items = append(items, v)
		if err := p.separator(open, closing); err != nil {
			return nil, err
		}
	}
	return items, p.advance()
}

// fields reads `name: value` pairs up to the closing parenthesis.
func (p *parser) fields(depth int) ([]Field, error) {
	open := p.tok
	if err := p.advance(); err != nil {
		return nil, err
	}
	var fields []Field
	seen := map[string]Span{}
	for !p.tok.is(")") {
		key := Value{Kind: Variant, Name: p.tok.text, Span: p.tok.span, doc: p.doc}
		if p.tok.kind != tokName {
			err := p.doc.errorAt(p.tok.span, "expected a field name, found %s", p.tok.describe())
			return nil, p.unclosed(open, ")", err)
		}
		if first, dup := seen[key.Name]; dup {
			return nil, key.Errorf("field `%s` is given twice; the first is on line %d", key.Name, first.Line)
		}
		seen[key.Name] = key.Span
		f, err := p.entry(key, open, ")", depth)
		if err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	return fields, p.advance()
}

// entries reads `key: value` pairs up to the closing brace.
func (p *parser) entries(depth int) ([]Field, error) {
	open := p.tok
	if err := p.advance(); err != nil {
		return nil, err
	}
	var fields []Field
	seen := map[string]Span{}
	for !p.tok.is("}") {
		key, err := p.value(depth + 1)
		if err != nil {
			return nil, p.unclosed(open, "}", err)
		}
		id := Field{Key: key}.name()
		if first, dup := seen[id]; dup && id != "" {
			return nil, key.Errorf("key `%s` is given twice; the first is on line %d", clip(id, 40), first.Line)
		}
		seen[id] = key.Span
		f, err := p.pair(key, open, "}", depth)
		if err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	return fields, p.advance()
}

// entry reads `name: value` when the next token is the name.
func (p *parser) entry(key Value, open token, closing string, depth int) (Field, error) {
	if err := p.advance(); err != nil {
		return Field{}, err
	}
	return p.pair(key, open, closing, depth)
}

// pair reads `: value` and the separator after it.
func (p *parser) pair(key Value, open token, closing string, depth int) (Field, error) {
	if !p.tok.is(":") {
		return Field{}, p.doc.errorAt(p.tok.span, "missing \":\" after `%s`, found %s", clip(Field{Key: key}.name(), 40), p.tok.describe())
	}
	if err := p.advance(); err != nil {
		return Field{}, err
	}
	v, err := p.value(depth + 1)
	if err != nil {
		return Field{}, p.unclosed(open, closing, err)
	}
	return Field{Key: key, Value: v}, p.separator(open, closing)
}

// separator reads the comma between values; the last one may be left out.
func (p *parser) separator(open token, closing string) error {
	switch {
	case p.tok.is(","):
		return p.advance()
	case p.tok.is(closing):
		return nil
	case p.tok.kind == tokEnd:
		return p.unclosed(open, closing, nil)
	case p.tok.kind == tokName || p.tok.kind == tokString || p.tok.kind == tokNumber || p.tok.is("(") || p.tok.is("[") || p.tok.is("{"):
		return p.doc.errorAt(p.tok.span, "missing \",\" before %s", p.tok.describe())
	}
	return p.doc.errorAt(p.tok.span, "expected \",\" or %q, found %s", closing, p.tok.describe())
}

// unclosed says which bracket is open when the file ends inside it; any other error passes.
func (p *parser) unclosed(open token, closing string, err error) error {
	if p.tok.kind != tokEnd {
		return err
	}
	var e *Error
	if errors.As(err, &e) && !strings.HasSuffix(e.Message, "the end of the file") {
		return err // an inner bracket was named already
	}
	return p.doc.errorAt(open.span, "this `%s` is never closed with `%s`", open.text, closing)
}

// validNumber accepts Go's integer and float literals; _ may separate digits.
func validNumber(text string) bool {
	if _, err := parseInt(text); err == nil {
		return true
	}
	_, err := parseUint(text)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return true
	}
	_, err = strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	return (err == nil || errors.Is(err, strconv.ErrRange)) && !strings.ContainsAny(text, "xXpPiInN")
}

func parseInt(text string) (int64, error) {
	return strconv.ParseInt(decimal(text), 0, 64)
}

func parseUint(text string) (uint64, error) {
	return strconv.ParseUint(strings.TrimPrefix(decimal(text), "+"), 0, 64)
}

// decimal drops separators and leading zeros, which Go would read as octal.
func decimal(text string) string {
	text = strings.ReplaceAll(text, "_", "")
	sign := ""
	if text != "" && (text[0] == '-' || text[0] == '+') {
		sign, text = text[:1], text[1:]
	}
	if len(text) > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9' {
		text = strings.TrimLeft(text[:len(text)-1], "0") + text[len(text)-1:]
	}
	return sign + text
}
