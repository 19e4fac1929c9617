// The list of settings, read from the struct tags, so that file, environment, flags and help can never disagree.

package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/forgeyard/forgeyard/cluster/config/ron"
)

// Setting is one thing that can be configured.
type Setting struct {
	Path string // "cluster.listen"
	Env  string // "FORGEYARD_CLUSTER_LISTEN"
	Flag string // "cluster-listen"
	Doc  string

	index   []int
	choices string
}

// Settings lists every setting in the order of the file.
func Settings() []Setting { return settings(reflect.TypeFor[Config](), "", nil) }

func settings(t reflect.Type, prefix string, index []int) []Setting {
	var out []Setting
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("ron")
		if name == "" {
			continue
		}
		path := name
		if prefix != "" {
			path = prefix + "." + name
		}
		at := append(append([]int{}, index...), i)
		if isSection(f.Type) {
			out = append(out, settings(f.Type, path, at)...)
			continue
		}
		out = append(out, Setting{
			Path: path, Doc: f.Tag.Get("doc"), index: at, choices: f.Tag.Get("choices"),
			Env:  envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_")),
			Flag: strings.NewReplacer(".", "-", "_", "-").Replace(path),
		})
	}
	return out
}

// isSection tells a group of settings from a value that happens to be a struct.
func isSection(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	p := reflect.PointerTo(t)
	return !p.Implements(reflect.TypeFor[ron.Unmarshaler]()) && !p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// Value is a setting's value as RON writes it, with passwords replaced.
func (s Setting) Value(c Config) string {
	return text(reflect.ValueOf(c).FieldByIndex(s.index))
}

func text(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return quote(x.String())
	case Size:
		return quote(x.String())
	case SecretRef:
		return x.String()
	case DSN:
		return x.String()
	case Level:
		return string(x)
	case Format:
		return string(x)
	case Audience:
		return string(x)
	case fmt.Stringer:
		return x.String()
	}
	switch v.Kind() {
	case reflect.String:
		return quote(v.String())
	case reflect.Slice:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = text(v.Index(i))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return fmt.Sprint(v.Interface())
}
