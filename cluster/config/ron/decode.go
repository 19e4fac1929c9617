// The decoder: values into Go structs by `ron:"name"` tags, with suggestions for names that do not exist.

package ron

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Unmarshaler decodes itself from a value; errors made with Value.Errorf point at it.
type Unmarshaler interface {
	UnmarshalRON(v Value) error
}

// Places tells where each field that a document gives was found, by dotted path
// ("cluster.listen"); elements of a list are "seeds[0]".
type Places map[string]Value

// Decode fills dst, a pointer to a struct, from a value; fields that the value
// does not give keep what they hold. Fields are named by their `ron` tag, else
// by their `json` tag. Supported: bool, integers, floats, string,
// time.Duration (from "10s"), slices, maps with string keys, structs, pointers
// (None, null or Some(x); Some may be left out), encoding.TextUnmarshaler (from
// a bare name or a string; a `choices:"A,B"` tag lists its names) and
// Unmarshaler. Errors are *Error.
func Decode(v Value, dst any) (Places, error) {
	places := Places{}
	d := decoder{places: places}
	return places, d.value(v, reflect.ValueOf(dst).Elem(), "", "")
}

// DecodeText decodes one setting given as plain text outside a document, as an
// environment variable or a flag gives it: a list is separated by commas, a text
// that starts with `[`, `(` or `{` is RON. source names the setting in errors.
func DecodeText(source, text string, dst any, choices string) error {
	rv := reflect.ValueOf(dst).Elem()
	doc := &Document{File: source}
	v := Value{Kind: String, Text: text, doc: doc}
	if trimmed := strings.TrimSpace(text); trimmed != "" && strings.ContainsRune("[({", rune(trimmed[0])) {
		parsed, err := Parse(source, []byte(text))
		if err != nil {
			return err
		}
		v = parsed
	} else if rv.Kind() == reflect.Slice {
		v.Kind = List
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				v.Items = append(v.Items, Value{Kind: String, Text: item, doc: doc})
			}
		}
	} else {
		switch k := rv.Kind(); {
		case rv.Type() == durationType || isText(rv):
		case k == reflect.Bool:
			v.Kind = Bool
		case k >= reflect.Int && k <= reflect.Float64:
			v.Kind = Number
		}
	}
	d := decoder{places: Places{}}
	return d.value(v, rv, "", choices)
}

var durationType = reflect.TypeFor[time.Duration]()

func isText(rv reflect.Value) bool {
	_, ok := rv.Addr().Interface().(encoding.TextUnmarshaler)
	return ok
}

type decoder struct {
	places Places
}

func (d *decoder) value(v Value, dst reflect.Value, path, choices string) error {
	if path != "" {
		d.places[path] = v
	}
	if v.Kind == Tuple && v.Name == "Some" && len(v.Items) == 1 && dst.Kind() != reflect.Pointer {
		v = v.Items[0] // an optional that has a default here
	}
	if u, ok := dst.Addr().Interface().(Unmarshaler); ok {
		return u.UnmarshalRON(v)
	}
	if u, ok := dst.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return d.text(v, u, path, choices)
	}
	if dst.Type() == durationType {
		return d.duration(v, dst, path)
	}
	switch dst.Kind() {
	case reflect.Pointer:
		return d.option(v, dst, path, choices)
	case reflect.Struct:
		return d.structure(v, dst, path)
	case reflect.Slice:
		return d.slice(v, dst, path, choices)
	case reflect.Map:
		return d.mapping(v, dst, path)
	case reflect.String:
		if v.Kind != String {
			return d.mismatch(v, path, "a string in double quotes")
		}
		dst.SetString(v.Text)
	case reflect.Bool:
		b, err := strconv.ParseBool(v.Text)
		if v.Kind != Bool || err != nil {
			return d.mismatch(v, path, "true or false")
		}
		dst.SetBool(b)
	default:
		return d.number(v, dst, path)
	}
	return nil
}

func (d *decoder) number(v Value, dst reflect.Value, path string) error {
	if v.Kind != Number {
		return d.mismatch(v, path, "a number")
	}
	switch k := dst.Kind(); {
	case k >= reflect.Int && k <= reflect.Int64:
		n, err := parseInt(v.Text)
		if err != nil {
			return d.mismatch(v, path, "a whole number")
		}
		if dst.OverflowInt(n) {
			return v.Errorf("%s%s is out of range", label(path), v.Text)
		}
		dst.SetInt(n)
	case k >= reflect.Uint && k <= reflect.Uint64:
		n, err := parseUint(v.Text)
		if err != nil {
			return d.mismatch(v, path, "a whole number that is not negative")
		}
		if dst.OverflowUint(n) {
			return v.Errorf("%s%s is out of range", label(path), v.Text)
		}
		dst.SetUint(n)
	case k == reflect.Float32 || k == reflect.Float64:
		f, err := strconv.ParseFloat(strings.ReplaceAll(v.Text, "_", ""), 64)
		if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			return d.mismatch(v, path, "a finite number")
		}
		dst.SetFloat(f)
	default:
		return v.Errorf("%sa value of type %s cannot be configured", label(path), dst.Type())
	}
	return nil
}

func (d *decoder) duration(v Value, dst reflect.Value, path string) error {
	if v.Kind == Number {
		return v.Errorf("%sa duration needs a unit: write \"%ss\" or \"%sms\"", label(path), v.Text, v.Text)
	}
	if v.Kind != String {
		return d.mismatch(v, path, "a duration such as \"10s\"")
	}
	n, err := time.ParseDuration(v.Text)
	if err != nil {
		return v.Errorf("%s%q is not a duration; write \"500ms\", \"10s\" or \"1h30m\"", label(path), clip(v.Text, 40))
	}
	dst.SetInt(int64(n))
	return nil
}

func (d *decoder) text(v Value, dst encoding.TextUnmarshaler, path, choices string) error {
	text := v.Text
	switch {
	case v.Kind == Variant || v.Kind == Struct && len(v.Fields) == 0 && v.Name != "":
		text = v.Name
	case v.Kind != String:
		return d.mismatch(v, path, "a name or a string")
	}
	err := dst.UnmarshalText([]byte(text))
	if err == nil {
		return nil
	}
	if choices == "" {
		return v.Errorf("%s%v", label(path), err)
	}
	names := strings.Split(choices, ",")
	if s := Suggest(text, names); s != "" {
		return v.Errorf("%sunknown value `%s`; did you mean `%s`?", label(path), clip(text, 40), s)
	}
	return v.Errorf("%sunknown value `%s`; choose one of %s", label(path), clip(text, 40), strings.Join(names, ", "))
}

func (d *decoder) option(v Value, dst reflect.Value, path, choices string) error {
	switch {
	case v.Kind == Variant && (v.Name == "None" || v.Name == "null"):
		dst.SetZero()
		return nil
	case v.Kind == Tuple && v.Name == "Some" && len(v.Items) == 1:
		v = v.Items[0]
	}
	target := reflect.New(dst.Type().Elem())
	if err := d.value(v, target.Elem(), path, choices); err != nil {
		return err
	}
	dst.Set(target)
	return nil
}

func (d *decoder) slice(v Value, dst reflect.Value, path, choices string) error {
	if v.Kind != List && (v.Kind != Tuple || v.Name != "") {
		return d.mismatch(v, path, "a list […]")
	}
	out := reflect.MakeSlice(dst.Type(), len(v.Items), len(v.Items))
	for i, item := range v.Items {
		if err := d.value(item, out.Index(i), fmt.Sprintf("%s[%d]", path, i), choices); err != nil {
			return err
		}
	}
	dst.Set(out)
	return nil
}

func (d *decoder) mapping(v Value, dst reflect.Value, path string) error {
	if v.Kind != Map && v.Kind != Struct {
		return d.mismatch(v, path, "a map {…}")
	}
	out := reflect.MakeMapWithSize(dst.Type(), len(v.Fields))
	for _, f := range v.Fields {
		if f.Key.Kind != String && f.Key.Kind != Variant {
			return d.mismatch(f.Key, path, "a text key")
		}
		item := reflect.New(dst.Type().Elem()).Elem()
		if err := d.value(f.Value, item, join(path, f.name()), ""); err != nil {
			return err
		}
		out.SetMapIndex(reflect.ValueOf(f.name()).Convert(dst.Type().Key()), item)
	}
	dst.Set(out)
	return nil
}

// structure fills a struct from a struct or from a map with text keys, which is how JSON writes one.
func (d *decoder) structure(v Value, dst reflect.Value, path string) error {
	if v.Kind != Struct && v.Kind != Map {
		return d.mismatch(v, path, "a struct (field: value)")
	}
	names, index, choices := fieldsOf(dst.Type())
	for _, f := range v.Fields {
		name := f.name()
		i, ok := index[name]
		if !ok {
			return f.Key.Errorf("%s", unknownField(name, path, names))
		}
		if isNone(f.Value) && dst.Field(i).Kind() != reflect.Pointer {
			continue // None and null leave the default
		}
		if err := d.value(f.Value, dst.Field(i), join(path, name), choices[name]); err != nil {
			return err
		}
	}
	return nil
}

func isNone(v Value) bool { return v.Kind == Variant && (v.Name == "None" || v.Name == "null") }

func unknownField(name, path string, names []string) string {
	where := "the document"
	if path != "" {
		where = path
	}
	if s := Suggest(name, names); s != "" {
		return fmt.Sprintf("unknown field `%s` in %s; did you mean `%s`?", clip(name, 40), where, s)
	}
	return fmt.Sprintf("unknown field `%s` in %s; it has %s", clip(name, 40), where, strings.Join(names, ", "))
}

// fieldsOf lists the fields of a struct that have a `ron` tag, else a `json`
// tag, in order, with their indexes and choices.
func fieldsOf(t reflect.Type) (names []string, index map[string]int, choices map[string]string) {
	index, choices = map[string]int{}, map[string]string{}
	for i := range t.NumField() {
		name := t.Field(i).Tag.Get("ron")
		if name == "" {
			name, _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
		}
		if name != "" && name != "-" {
			names = append(names, name)
			index[name] = i
			choices[name] = t.Field(i).Tag.Get("choices")
		}
	}
	return names, index, choices
}

func (d *decoder) mismatch(v Value, path, want string) error {
	return v.Errorf("%sexpected %s, found %s", label(path), want, v.describe())
}

// label opens a message with the path, where there is one.
func label(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
