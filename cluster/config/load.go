// Loading in layers: flag > FORGEYARD_… environment > file > default, remembering where each value came from.

package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/forgeyard/forgeyard/cluster/config/ron"
)

// Layer is where a value came from.
type Layer uint8

// The layers, weakest first.
const (
	FromDefault     Layer = 1
	FromConfigFile  Layer = 2
	FromEnvironment Layer = 3
	FromFlag        Layer = 4
)

// Origin is where a value came from, with its place: "forgeyard.ron:4:9",
// "FORGEYARD_CLUSTER_LISTEN" or "--cluster-listen".
type Origin struct {
	Layer Layer
	Place string
	value ron.Value // to point at it in later errors; zero unless from the file
}

func (o Origin) String() string {
	if o.Layer == FromDefault {
		return "default"
	}
	return o.Place
}

// Options says where to look. The zero Options reads nothing but defaults.
type Options struct {
	File    string            // from --config; "" searches
	Environ []string          // as os.Environ gives it
	Flags   map[string]string // by dotted path, only those that were given
	Search  []string          // files to try when neither File nor FORGEYARD_CONFIG names one
}

// SearchPath is where a configuration is looked for when none is named.
func SearchPath() []string { return []string{"./forgeyard.ron", "/etc/forgeyard/forgeyard.ron"} }

// Loaded is a configuration that passed validation, and how it came about.
type Loaded struct {
	Config
	File     string // "" when no file was found
	Origins  map[string]Origin
	Warnings []string
}

// Load finds, reads, merges and validates. Its errors are *Error and Errors.
func Load(o Options) (*Loaded, error) {
	env := environment(o.Environ)
	l := &Loaded{Config: Default(), Origins: map[string]Origin{}}
	for _, s := range Settings() {
		l.Origins[s.Path] = Origin{Layer: FromDefault}
	}
	var err error
	if l.File, err = find(o, env); err != nil {
		return nil, err
	}
	if l.File != "" {
		if err := l.readFile(); err != nil {
			return nil, err
		}
	}
	if err := l.overlay(env, o.Flags); err != nil {
		return nil, err
	}
	l.derive()
	if faults := l.validate(); len(faults) > 0 {
		return nil, faults
	}
	return l, nil
}

// find names the file to read: --config, FORGEYARD_CONFIG, then the first of
// the search path that exists. A named file that does not exist is an error.
func find(o Options, env map[string]string) (string, error) {
	named := o.File
	if named == "" {
		named = env["FORGEYARD_CONFIG"]
	}
	if named != "" {
		return named, nil
	}
	for _, path := range o.Search {
		_, err := os.Stat(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", &Error{Code: CodeUnreadable, Err: fmt.Errorf("look for a configuration: %w", err)}
		}
	}
	return "", nil
}

func (l *Loaded) readFile() error {
	src, err := readBounded(l.File)
	if err != nil {
		return &Error{Code: CodeUnreadable, Err: err, Hint: "name a file that exists, or write one: forgeyard config example > forgeyard.ron"}
	}
	doc, err := ron.Parse(l.File, src)
	if err != nil {
		return syntax(err)
	}
	places, err := ron.Decode(doc, &l.Config)
	if err != nil {
		return syntax(err)
	}
	for path, v := range places {
		place := fmt.Sprintf("%s:%d:%d", l.File, v.Span.Line, v.Span.Col)
		l.Origins[path] = Origin{Layer: FromConfigFile, Place: place, value: v}
	}
	return nil
}

// readBounded reads at most one byte more than a document may have, so that a
// device or a huge file cannot exhaust memory.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	src, err := io.ReadAll(io.LimitReader(f, ron.MaxSize+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return src, nil
}

// overlay applies the environment, then the flags.
func (l *Loaded) overlay(env, flags map[string]string) error {
	known := map[string]bool{}
	for _, s := range Settings() {
		known[s.Env] = true
		if text, ok := env[s.Env]; ok {
			if err := l.set(s, s.Env, text); err != nil {
				return err
			}
			l.Origins[s.Path] = Origin{Layer: FromEnvironment, Place: s.Env}
		}
		if text, ok := flags[s.Path]; ok {
			if err := l.set(s, "--"+s.Flag, text); err != nil {
				return err
			}
			l.Origins[s.Path] = Origin{Layer: FromFlag, Place: "--" + s.Flag}
		}
	}
	return unknownVariables(env, known)
}

func (l *Loaded) set(s Setting, source, text string) error {
	err := ron.DecodeText(source, text, reflect.ValueOf(&l.Config).Elem().FieldByIndex(s.index).Addr().Interface(), s.choices)
	if err != nil {
		return syntax(err)
	}
	return nil
}

// unknownVariables refuses a misspelt setting: FORGEYARD_CLUSTER_LISTE would
// otherwise be ignored in silence. Other FORGEYARD_ variables are not settings.
func unknownVariables(env map[string]string, known map[string]bool) error {
	sections := []string{"CLUSTER_", "AGENTS_", "HTTP_", "API_", "ADMIN_", "POSTGRES_", "LOG_"}
	names := make([]string, 0, len(env))
	for name := range env {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		rest := strings.TrimPrefix(name, envPrefix)
		isSetting := slices.ContainsFunc(sections, func(p string) bool { return strings.HasPrefix(rest, p) })
		if known[name] || !isSetting {
			continue
		}
		candidates := make([]string, 0, len(known))
		for k := range known {
			candidates = append(candidates, k)
		}
		slices.Sort(candidates)
		hint := "list the settings with: forgeyard config show --origin"
		if s := ron.Suggest(name, candidates); s != "" {
			hint = "did you mean " + s + "?"
		}
		return &Error{Code: CodeUnknownEnv, Hint: hint, Err: fmt.Errorf("environment variable %s sets nothing", name)}
	}
	return nil
}

const envPrefix = "FORGEYARD_"

func environment(environ []string) map[string]string {
	env := map[string]string{}
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(name, envPrefix) {
			env[name] = value
		}
	}
	return env
}
