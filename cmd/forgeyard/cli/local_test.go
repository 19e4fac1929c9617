// Commands that need no daemon: pki, config, explain, version; and the command tree itself.

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/config"
	"github.com/forgeyard/forgeyard/cluster/membership"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/codes"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// authority makes an authority and returns its directory.
func authority(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pki")
	_, err := pki.NewAuthority(dir, pki.AuthorityOptions{})
	require.NoError(t, err)
	return dir
}

func TestPKI(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	s := invoke(t, nil, nil, "pki", "init", "--dir", dir, "-o", "json")
	require.Zero(t, s.code, s.err.String())
	var ca Issued
	require.NoError(t, json.Unmarshal(s.out.Bytes(), &ca))

	for _, kind := range []string{"node", "agent", "admin"} {
		s = invoke(t, nil, nil, "pki", "issue", kind, kind+"-1", "--dir", dir, "-o", "json")
		require.Zero(t, s.code, s.err.String())
		var got Issued
		require.NoError(t, json.Unmarshal(s.out.Bytes(), &got))
		id, err := pki.Load(got.Cert, got.Key, got.CA)
		require.NoError(t, err)
		require.Equal(t, got.Subject, id.Subject().String())
		require.Equal(t, ca.Cluster, id.Subject().Cluster)
		require.Equal(t, pki.Kind(kind), id.Subject().Kind)
		if kind == "node" {
			node, err := fsm.ParseNodeID(got.ID)
			require.NoError(t, err)
			read, err := nodeID(got.Cert)
			require.NoError(t, err)
			require.Equal(t, node, read)
		} else {
			require.Equal(t, kind+"-1", got.ID)
			s = invoke(t, nil, nil, "cluster", "add", got.Cert)
			require.Equal(t, ExitUsage, s.code)
			require.Contains(t, s.err.String(), "not of a node")
		}
	}
	s = invoke(t, nil, nil, "pki", "issue", "node", "node-1", "--dir", dir)
	require.Equal(t, ExitFailed, s.code, "nothing is replaced")
	require.Contains(t, s.err.String(), "FY-CERT-010")
	s = invoke(t, nil, nil, "pki", "init", "--dir", dir)
	require.Equal(t, ExitFailed, s.code)

	other := authority(t)
	s = invoke(t, nil, nil, "pki", "issue", "agent", "a", "--dir", other, "--out", filepath.Join(dir, "node-1"))
	require.Equal(t, ExitRefused, s.code, "two authorities do not share a directory")
	s = invoke(t, nil, nil, "pki", "issue", "agent", "a", "--dir", t.TempDir())
	require.Equal(t, ExitFailed, s.code)
}

func TestConfigCommands(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "forgeyard.ron")
	example := invoke(t, nil, nil, "config", "example")
	require.Zero(t, example.code)
	require.NoError(t, os.WriteFile(path, example.out.Bytes(), 0o600))
	s := invoke(t, nil, nil, "config", "check", path)
	require.Zero(t, s.code, s.err.String())
	require.Equal(t, "ok: "+path+"\n", s.out.String())

	s = invoke(t, nil, func(s *screen) { s.Environ = []string{"FORGEYARD_HTTP_LISTEN=127.0.0.1:9"} }, "config", "show", "--config", path, "-o", "json")
	require.Zero(t, s.code, s.err.String())
	var shown ConfigShow
	require.NoError(t, json.Unmarshal(s.out.Bytes(), &shown))
	origins := map[string]string{}
	for _, x := range shown.Settings {
		origins[x.Path] = x.Value + " " + x.Origin
	}
	require.Equal(t, `"127.0.0.1:9" FORGEYARD_HTTP_LISTEN`, origins["http.listen"])
	require.Contains(t, origins["cluster.node_id"], `"node-a" `+path+":")

	require.NoError(t, os.WriteFile(path, []byte("(\n  cluster: (\n\t node_ids: \"a\",\n  ),\n)"), 0o600))
	s = invoke(t, nil, nil, "config", "check", path)
	require.Equal(t, ExitUsage, s.code)
	require.Equal(t, "error: "+path+":3:3: unknown field `node_ids` in cluster; did you mean `node_id`?\n  3 | \t node_ids: \"a\",\n    | \t ^^^^^^^^\n  why: forgeyard explain FY-CONFIG-002\n", s.err.String())
	s = invoke(t, nil, nil, "config", "check", filepath.Join(dir, "none"))
	require.Equal(t, ExitUsage, s.code)
	require.Contains(t, s.err.String(), "FY-CONFIG-001")
}

func TestExplain(t *testing.T) {
	s := invoke(t, nil, nil, "explain", "fy-quorum-001")
	require.Zero(t, s.code)
	require.True(t, strings.HasPrefix(s.out.String(), "FY-QUORUM-001  no majority of the voters can be reached\n\nWhat: "), s.out.String())
	s = invoke(t, nil, nil, "explain", "FY-QUORUM-01")
	require.Equal(t, ExitUsage, s.code)
	require.Contains(t, s.err.String(), "did you mean FY-QUORUM-001?")
	s = invoke(t, nil, nil, "explain", "FY-NOPE-001")
	require.Equal(t, "error: unknown code \"FY-NOPE-001\"\n  now: list them with: forgeyard explain --list\n", s.err.String(), "no guess at another family")
	s = invoke(t, nil, nil, "explain", "nonsense")
	require.Contains(t, s.err.String(), "forgeyard explain --list")
	all, err := codes.All()
	require.NoError(t, err)
	s = invoke(t, nil, nil, "explain", "--list", "-o", "name")
	require.Equal(t, len(all), strings.Count(s.out.String(), "code/"))
}

func TestVersion(t *testing.T) {
	s := &screen{}
	s.IO = IO{Out: &s.out, Err: &s.err, In: strings.NewReader("")}
	require.Zero(t, Run(t.Context(), s.IO, Deps{Version: "1.2.3"}, []string{"version"}))
	require.True(t, strings.HasPrefix(s.out.String(), "forgeyard 1.2.3 ("), s.out.String())
}

func TestAdd(t *testing.T) {
	node := fsm.NodeID{1, 15: 4}
	f := fleet{"POST /v1/cluster/add": membership.Added{APIVersion: apiVersion, Kind: "JoinToken", Node: node, Name: "node-d", Token: "fyj_secret", TTLSeconds: 900}}
	url := f.serve(t)
	s := invoke(t, []string{url}, nil, "cluster", "add", node.String(), "--name", "node-d")
	require.Zero(t, s.code, s.err.String())
	require.Equal(t, "fyj_secret\nthis token is shown once; it lets node "+node.String()+" join within 15m00s\n"+
		"next, on that node, with the token in a file: forgeyard daemon --join-token-file TOKEN-FILE\nthen: forgeyard cluster promote "+node.String()+"\n", s.out.String())

	file := filepath.Join(t.TempDir(), "token")
	s = invoke(t, []string{url}, nil, "cluster", "add", node.String(), "--token-file", file, "-o", "json")
	require.Zero(t, s.code, s.err.String())
	require.NotContains(t, s.out.String(), "fyj_secret", "it is shown in one place only")
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "fyj_secret\n", string(b))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestPromoteAsksBeforeTwoVoters(t *testing.T) {
	single := healthy()
	single.Quorum.VotersTotal, single.Members = 1, single.Members[:1]
	f := fleet{"GET /v1/cluster/status": single, "POST /v1/cluster/promote": membership.Promoted{APIVersion: apiVersion, Kind: "Promotion", Name: "node-b", Voters: 2}}
	url := f.serve(t)
	s := invoke(t, []string{url}, nil, "cluster", "promote", "node-b")
	require.Equal(t, ExitRefused, s.code, "nobody is there to ask")
	require.Contains(t, s.err.String(), "add --yes when that is intended")
	answer := func(text string) func(*screen) {
		return func(s *screen) { s.InTTY, s.OutTTY, s.In = true, true, strings.NewReader(text) }
	}
	for text, want := range map[string]int{"n\n": ExitRefused, "\n": ExitRefused, "": ExitRefused, "y\n": ExitOK, "YES\n": ExitOK} {
		s = invoke(t, []string{url}, answer(text), "cluster", "promote", "node-b", "--no-color")
		require.Equal(t, want, s.code, "%q", text)
	}
	s = invoke(t, []string{url}, answer("y\n"), "cluster", "promote", "node-b", "--no-input")
	require.Equal(t, ExitRefused, s.code)
	s = invoke(t, []string{url}, nil, "cluster", "promote", "node-b", "--yes")
	require.Zero(t, s.code)
	require.Equal(t, "promoted node-b\n        VOTERS  QUORUM  CAN LOSE\nbefore  1       1       0\nafter   2       2       0\n", s.out.String())
	s = invoke(t, []string{url}, nil, "cluster", "promote", "node-a")
	require.Zero(t, s.code, "a voter changes nothing, so nothing is asked")
}

// commands that main adds; the tests stand in for them.
func stubs() Deps {
	stub := func(use string) *cobra.Command {
		return &cobra.Command{Use: use, Short: use, RunE: func(*cobra.Command, []string) error { return nil }}
	}
	return Deps{Daemon: stub("daemon"), Agent: stub("agent"), Dev: stub("dev"), Demo: stub("demo")}
}

// Whatever a help text, a hint, a message or the catalogue tells people to type must exist.
func TestTextsNameCommandsThatExist(t *testing.T) {
	root := New(stubs())
	var texts []string
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		texts = append(texts, c.Long, c.Short, c.Example)
		require.NotEmpty(t, c.Short, c.CommandPath())
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	all, err := codes.All()
	require.NoError(t, err)
	for _, e := range all {
		texts = append(texts, e.Text)
	}
	literal := regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"")
	for _, dir := range []string{".", "client", "../server", "../../../cluster", "../../../cluster/config", "../../../cluster/membership", "../../../cluster/raftnode", "../../../transport", "../../../transport/pki", "../../../roles/store", "../../../roles/runner", "../../../roles/scheduler", "../../../roles/artifact", "../../../roles/events"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			b, err := os.ReadFile(f)
			require.NoError(t, err)
			texts = append(texts, literal.FindAllString(string(b), -1)...)
		}
	}
	mention := regexp.MustCompile(`forgeyard ((?:[a-z]+ ?)+)`)
	found := 0
	for _, text := range texts {
		for _, m := range mention.FindAllStringSubmatch(text, -1) {
			words := strings.Fields(m[1])
			if first, _, err := root.Find(words[:1]); err != nil || first == root {
				if words[0] == "process" || words[0] == "quic" {
					continue // a sentence about the program, a name of a key
				}
				t.Errorf("%q names no command: %s", words[0], text)
				continue
			}
			found++
			c, rest, err := root.Find(words)
			require.NoError(t, err)
			if c.HasSubCommands() && len(rest) > 0 {
				t.Errorf("%q has no command %q: %s", c.CommandPath(), rest[0], text)
			}
		}
	}
	require.Greater(t, found, 50)
}

func TestHelpListsWhatExists(t *testing.T) {
	s := invoke(t, nil, nil, "--help")
	require.Zero(t, s.code)
	require.NotContains(t, s.out.String(), "Processes:", "no heading without commands")
	s = &screen{}
	s.IO = IO{Out: &s.out, Err: &s.err, In: strings.NewReader("")}
	require.Zero(t, Run(t.Context(), s.IO, stubs(), nil))
	for _, name := range []string{"daemon", "agent", "dev", "demo", "cluster", "run", "actors", "pki", "config", "explain", "version", "completion"} {
		require.Regexp(t, `(?m)^  `+name+` `, s.out.String())
	}
	s = invoke(t, nil, nil, "completion", "bash")
	require.Zero(t, s.code)
	require.Contains(t, s.out.String(), "forgeyard")
}

// Whatever help says fits the terminal, with the texts of the commands that live elsewhere.
func TestHelpFitsTheTerminal(t *testing.T) {
	const columns = 80
	deps := func() Deps {
		d := stubs()
		d.Agent.Long = strings.Repeat("Runs an agent until SIGINT or SIGTERM, and then for a while. ", 4)
		for _, s := range config.Settings() {
			d.Daemon.Flags().String(s.Flag, "", s.Doc)
		}
		d.Agent.Flags().String("keys", "", strings.Repeat("files, or directories of them, ", 6))
		return d
	}
	var paths [][]string
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		paths = append(paths, strings.Fields(c.CommandPath())[1:])
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(New(deps()))
	require.Greater(t, len(paths), 30)
	for _, path := range paths {
		s := &screen{}
		s.IO = IO{Out: &s.out, Err: &s.err, In: strings.NewReader(""), OutTTY: true, Width: columns}
		require.Zero(t, Run(t.Context(), s.IO, deps(), append(path, "--help")))
		for line := range strings.Lines(s.out.String()) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), columns, "%v: %s", path, line)
		}
	}
}

func TestFold(t *testing.T) {
	require.Equal(t, "", fold("", 10))
	require.Equal(t, "one two\nthree", fold("one\ntwo three", 9))
	require.Equal(t, "ünë twö\n\nthree", fold("ünë twö\n\nthree", 7), "columns, not bytes; paragraphs stay")
	require.Equal(t, "a\nlonger-than-wide\nb", fold("a longer-than-wide b", 8))
}

// What help shows as a run's file must be one.
func TestSampleRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sample.ron")
	require.NoError(t, os.WriteFile(path, []byte(sampleRun), 0o600))
	spec, err := (&app{}).readSpec(path)
	require.NoError(t, err)
	require.NoError(t, spec.Validate())
	require.Len(t, spec.Jobs, 2)
}

// Commands that are made elsewhere say what they take as those of this package do.
func TestCobraErrors(t *testing.T) {
	for name, c := range map[string]struct {
		takes cobra.PositionalArgs
		given []string
		want  string
	}{
		"too few":   {cobra.ExactArgs(1), nil, "error: forgeyard dev kill takes NODE, 0 given\n  now: usage: forgeyard dev kill NODE\n"},
		"too many":  {cobra.ExactArgs(1), []string{"a", "b"}, "error: forgeyard dev kill takes NODE, 2 given\n  now: usage: forgeyard dev kill NODE\n"},
		"at least":  {cobra.MinimumNArgs(1), nil, "error: forgeyard dev kill takes NODE, 0 given\n  now: usage: forgeyard dev kill NODE\n"},
		"a range":   {cobra.RangeArgs(1, 2), nil, "error: forgeyard dev kill takes NODE, 0 given\n  now: usage: forgeyard dev kill NODE\n"},
		"none":      {cobra.NoArgs, []string{"x"}, "error: forgeyard dev kill takes no arguments, 1 given\n  now: leave them out; its flags: forgeyard dev kill --help\n"},
		"its right": {cobra.ExactArgs(1), []string{"a"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			deps := stubs()
			deps.Dev.AddCommand(&cobra.Command{Use: "kill NODE", Short: "s", Args: c.takes, RunE: func(*cobra.Command, []string) error { return nil }})
			s := &screen{}
			s.IO = IO{Out: &s.out, Err: &s.err, In: strings.NewReader("")}
			code := Run(t.Context(), s.IO, deps, append([]string{"dev", "kill"}, c.given...))
			require.Equal(t, c.want, s.err.String())
			require.Equal(t, c.want != "", code == ExitUsage)
		})
	}
}
