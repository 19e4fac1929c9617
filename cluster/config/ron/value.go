// Package ron reads the subset of RON (Rusty Object Notation) that a
// configuration needs, and JSON, which is nearly a subset of it.
//
// This file: the tree of values with their places in the source.
package ron

import "fmt"

// Limits of a document. Both are checked before anything is allocated for it.
const (
	MaxSize  = 1 << 20 // bytes of a document
	MaxDepth = 64      // nesting of values
)

// Kind is what a value looks like in the source.
type Kind uint8

// The kinds of values.
const (
	Bool    Kind = 1 // true, false
	Number  Kind = 2 // 1, -1_000, 0xff, 1.5e3, inf, NaN; Text holds the literal
	String  Kind = 3 // "…", r#"…"#, 'c'; Text holds the content
	List    Kind = 4 // […]
	Map     Kind = 5 // {key: value}
	Tuple   Kind = 6 // (a, b) or Name(a, b)
	Struct  Kind = 7 // (field: value) or Name(field: value)
	Variant Kind = 8 // a bare name: Distributed, None, null; and () with an empty name
)

func (k Kind) String() string {
	switch k {
	case Bool:
		return "a boolean"
	case Number:
		return "a number"
	case String:
		return "a string"
	case List:
		return "a list"
	case Map:
		return "a map"
	case Tuple:
		return "a tuple"
	case Struct:
		return "a struct"
	case Variant:
		return "a name"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Span is a place in the source: 1-based line and column (in characters) and
// the number of characters it covers. The zero Span is no place.
type Span struct {
	Line, Col, Len int
}

// Value is one value of a document.
type Value struct {
	Kind   Kind
	Span   Span
	Name   string  // of a struct, tuple or variant; may be empty
	Text   string  // of a string, number or boolean
	Items  []Value // of a list or tuple
	Fields []Field // of a struct or map
	doc    *Document
}

// Field is one entry of a struct or map.
type Field struct {
	Key   Value // a Variant (bare name) in a struct; any value in a map
	Value Value
}

// name is the entry's key as text, "" when it is not one.
func (f Field) name() string {
	switch f.Key.Kind {
	case String, Number, Bool:
		return f.Key.Text
	case Variant:
		return f.Key.Name
	}
	return ""
}

// Errorf returns an error that points at the value.
func (v Value) Errorf(format string, args ...any) error {
	return v.doc.errorAt(v.Span, format, args...)
}

// describe names a value for an error message.
func (v Value) describe() string {
	switch v.Kind {
	case Bool, Number:
		return v.Text
	case String:
		return fmt.Sprintf("the string %q", clip(v.Text, 40))
	case Variant:
		if v.Name == "" {
			return "()"
		}
		return "the name " + v.Name
	case Tuple, Struct:
		if v.Name != "" {
			return v.Name + "(…)"
		}
	}
	return v.Kind.String()
}
