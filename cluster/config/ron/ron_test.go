// The reader's promises: what it accepts, and the exact text of what it refuses.

package ron

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/forgeyard/forgeyard/testkit/corpus"
)

type mode string

func (m *mode) UnmarshalText(b []byte) error {
	switch string(b) {
	case "Standalone", "Distributed":
		*m = mode(b)
		return nil
	}
	return fmt.Errorf("unknown mode %q", b)
}

type inner struct {
	Mode   mode              `ron:"mode" choices:"Standalone,Distributed"`
	NodeID string            `ron:"node_id"`
	Listen *string           `ron:"listen"`
	Seeds  []string          `ron:"seeds"`
	Wait   time.Duration     `ron:"wait"`
	Count  uint8             `ron:"count"`
	Signed int64             `ron:"signed"`
	Ratio  float64           `ron:"ratio"`
	On     bool              `ron:"on"`
	Env    map[string]string `ron:"env"`
	Hidden string
}

type outer struct {
	Cluster inner `ron:"cluster"`
}

func decode(src string) (outer, error) {
	var o outer
	v, err := Parse("forgeyard.ron", []byte(src))
	if err != nil {
		return o, err
	}
	_, err = Decode(v, &o)
	return o, err
}

func TestReadsTheLanguage(t *testing.T) {
	got, err := decode("#![enable(implicit_some)]\n// comment\nConfig(\n cluster: /* a /* nested */ one */ Cluster(\n" +
		"  mode: Distributed, node_id: r#\"a \"raw\" one\"#, listen: Some(\"x:1\"), seeds: [\"a\", \"\\u{e9}\\x41\\n\",],\n" +
		"  wait: \"1m30s\", count: 0xff, signed: -1_000, ratio: 1.5e-3, on: true, env: {\"A\": \"1\", \"B\": \"2\"},\n ),\n)")
	require.NoError(t, err)
	listen := "x:1"
	require.Equal(t, inner{
		Mode: "Distributed", NodeID: `a "raw" one`, Listen: &listen, Seeds: []string{"a", "éA\n"}, Wait: 90 * time.Second,
		Count: 255, Signed: -1000, Ratio: 0.0015, On: true, Env: map[string]string{"A": "1", "B": "2"},
	}, got.Cluster)
}

func TestJSONReadsTheSame(t *testing.T) {
	got, err := decode(`{"cluster": {"mode": "Distributed", "node_id": "a\u00e9\ud83d\ude00\/", "listen": null, "seeds": [], "count": 7, "on": false}}`)
	require.NoError(t, err)
	require.Equal(t, inner{Mode: "Distributed", NodeID: "aé😀/", Seeds: []string{}, Count: 7}, got.Cluster)
}

func TestOptionalForms(t *testing.T) {
	for src, want := range map[string]string{`None`: "", `null`: "", `Some("v")`: "v", `"v"`: "v"} {
		got, err := decode("(cluster: (listen: " + src + "))")
		require.NoError(t, err, src)
		if want == "" {
			require.Nil(t, got.Cluster.Listen, src)
			continue
		}
		require.Equal(t, want, *got.Cluster.Listen, src)
	}
	got, err := decode(`(cluster: (node_id: Some("n"), count: Some(3)))`)
	require.NoError(t, err)
	require.Equal(t, inner{NodeID: "n", Count: 3}, got.Cluster)
}

// Each error is compared whole: message, source line and caret.
func TestErrorsShowThePlace(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"unknown field", "(\n  cluster: (\n    node_ids: \"node-a\",\n  ),\n)",
			"forgeyard.ron:3:5: unknown field `node_ids` in cluster; did you mean `node_id`?\n  3 |     node_ids: \"node-a\",\n    |     ^^^^^^^^"},
		{"field far from any", "(clutter: (), qqq: 1)",
			"forgeyard.ron:1:2: unknown field `clutter` in the document; did you mean `cluster`?\n  1 | (clutter: (), qqq: 1)\n    |  ^^^^^^^"},
		{"no suggestion", "(zzz: 1)",
			"forgeyard.ron:1:2: unknown field `zzz` in the document; it has cluster\n  1 | (zzz: 1)\n    |  ^^^"},
		{"missing comma", "(cluster: (\n  mode: Distributed\n  node_id: \"a\",\n))",
			"forgeyard.ron:3:3: missing \",\" before `node_id`\n  3 |   node_id: \"a\",\n    |   ^^^^^^^"},
		{"missing comma in a list", `(cluster: (seeds: ["a" "b"]))`,
			"forgeyard.ron:1:24: missing \",\" before a string\n  1 | (cluster: (seeds: [\"a\" \"b\"]))\n    |                        ^^^"},
		{"duplicate", "(cluster: (on: true,\n on: false))",
			"forgeyard.ron:2:2: field `on` is given twice; the first is on line 1\n  2 |  on: false))\n    |  ^^"},
		{"duplicate key", `{"cluster": {}, "cluster": {}}`,
			"forgeyard.ron:1:17: key `cluster` is given twice; the first is on line 1\n  1 | {\"cluster\": {}, \"cluster\": {}}\n    |                 ^^^^^^^^^"},
		{"missing colon", `(cluster: (mode Distributed))`,
			"forgeyard.ron:1:17: missing \":\" after `mode`, found `Distributed`\n  1 | (cluster: (mode Distributed))\n    |                 ^^^^^^^^^^^"},
		{"wrong type", `(cluster: (count: "three"))`,
			"forgeyard.ron:1:19: cluster.count: expected a number, found the string \"three\"\n  1 | (cluster: (count: \"three\"))\n    |                   ^^^^^^^"},
		{"out of range", `(cluster: (count: 256))`,
			"forgeyard.ron:1:19: cluster.count: 256 is out of range\n  1 | (cluster: (count: 256))\n    |                   ^^^"},
		{"negative", `(cluster: (count: -1))`,
			"forgeyard.ron:1:19: cluster.count: expected a whole number that is not negative, found -1\n  1 | (cluster: (count: -1))\n    |                   ^^"},
		{"duration without unit", `(cluster: (wait: 10))`,
			"forgeyard.ron:1:18: cluster.wait: a duration needs a unit: write \"10s\" or \"10ms\"\n  1 | (cluster: (wait: 10))\n    |                  ^^"},
		{"bad duration", `(cluster: (wait: "ten"))`,
			"forgeyard.ron:1:18: cluster.wait: \"ten\" is not a duration; write \"500ms\", \"10s\" or \"1h30m\"\n  1 | (cluster: (wait: \"ten\"))\n    |                  ^^^^^"},
		{"misspelt variant", `(cluster: (mode: Distribted))`,
			"forgeyard.ron:1:18: cluster.mode: unknown value `Distribted`; did you mean `Distributed`?\n  1 | (cluster: (mode: Distribted))\n    |                  ^^^^^^^^^^"},
		{"unknown variant", `(cluster: (mode: Swarm))`,
			"forgeyard.ron:1:18: cluster.mode: unknown value `Swarm`; choose one of Standalone, Distributed\n  1 | (cluster: (mode: Swarm))\n    |                  ^^^^^"},
		{"bare word for a string", `(cluster: (node_id: nodea))`,
			"forgeyard.ron:1:21: cluster.node_id: expected a string in double quotes, found the name nodea\n  1 | (cluster: (node_id: nodea))\n    |                     ^^^^^"},
		{"bare address", `(cluster: (node_id: 10.0.0.1))`,
			"forgeyard.ron:1:21: `10.0.0.1` is not a number; write durations, sizes and addresses as strings\n  1 | (cluster: (node_id: 10.0.0.1))\n    |                     ^^^^^^^^"},
		{"never closed", "(\n cluster: (\n  on: true,\n",
			"forgeyard.ron:2:11: this `(` is never closed with `)`\n  2 |  cluster: (\n    |           ^"},
		{"string never closed", "(cluster: (node_id: \"a))\n",
			"forgeyard.ron:1:21: this string is never closed with `\"`\n  1 | (cluster: (node_id: \"a))\n    |                     ^"},
		{"comment never closed", "(/* x", "forgeyard.ron:1:2: this comment is never closed with `*/`\n  1 | (/* x\n    |  ^^"},
		{"bad escape", `(cluster: (node_id: "a\q"))`,
			"forgeyard.ron:1:23: unknown escape \\q; write \\\\ for a backslash, or a raw string r\"…\"\n  1 | (cluster: (node_id: \"a\\q\"))\n    |                       ^^"},
		{"trailing text", "(cluster: ())\nextra", "forgeyard.ron:2:1: the document has ended before `extra`\n  2 | extra\n    | ^^^^^"},
		{"empty file", "  \n", "forgeyard.ron:2:1: expected a value, found the end of the file\n  2 | \n    | ^"},
		{"not a struct", `(cluster: 3)`, "forgeyard.ron:1:11: cluster: expected a struct (field: value), found 3\n  1 | (cluster: 3)\n    |           ^"},
		{"not UTF-8", "(\n\xff)", "forgeyard.ron:2:1: this line is not UTF-8 text\n  2 | ?)\n    | ^"},
		{"escape codes stay out of the terminal", "(cluster: (\x1b[31m: 1))",
			"forgeyard.ron:1:12: unexpected character '\\x1b'\n  1 | (cluster: (?[31m: 1))\n    |            ^"},
		{"tabs keep the caret in place", "(\n\tclustr: ())",
			"forgeyard.ron:2:2: unknown field `clustr` in the document; did you mean `cluster`?\n  2 | \tclustr: ())\n    | \t^^^^^^"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := decode(c.src)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.want, e.Error())
		})
	}
}

func TestLimits(t *testing.T) {
	_, err := decode(strings.Repeat("[", MaxDepth+1))
	require.ErrorContains(t, err, fmt.Sprintf("nested deeper than %d", MaxDepth))
	_, err = Parse("f", []byte(strings.Repeat("[", MaxDepth)+strings.Repeat("]", MaxDepth)))
	require.NoError(t, err)
	_, err = Parse("f", make([]byte, MaxSize+1))
	require.EqualError(t, err, fmt.Sprintf("f: the file has more than %d bytes", MaxSize))
	long := `(cluster: (nodeid: "` + strings.Repeat("x", 5000) + `"))`
	_, err = decode(long)
	require.ErrorContains(t, err, "did you mean `node_id`?")
	require.Less(t, len(err.Error()), 400, "a long line is shown in part")
}

func TestDefaultsStayWhereNothingIsGiven(t *testing.T) {
	o := outer{Cluster: inner{NodeID: "kept", Count: 9}}
	v, err := Parse("f", []byte(`(cluster: (on: true, node_id: None))`))
	require.NoError(t, err)
	places, err := Decode(v, &o)
	require.NoError(t, err)
	require.Equal(t, inner{NodeID: "kept", Count: 9, On: true}, o.Cluster)
	require.Equal(t, Span{Line: 1, Col: 16, Len: 4}, places["cluster.on"].Span)
	require.NotContains(t, places, "cluster.node_id")
}

func TestDecodeText(t *testing.T) {
	var list []string
	require.NoError(t, DecodeText("SEEDS", "a:1, b:2", &list, ""))
	require.Equal(t, []string{"a:1", "b:2"}, list)
	require.NoError(t, DecodeText("SEEDS", `["c"]`, &list, ""))
	require.Equal(t, []string{"c"}, list)
	var n uint16
	require.EqualError(t, DecodeText("PORT", "70000", &n, ""), "PORT: 70000 is out of range")
	var b bool
	require.NoError(t, DecodeText("ON", "true", &b, ""))
	require.True(t, b)
	var d time.Duration
	require.NoError(t, DecodeText("WAIT", "3s", &d, ""))
	require.Equal(t, 3*time.Second, d)
	var m mode
	require.EqualError(t, DecodeText("MODE", "Distribute", &m, "Standalone,Distributed"),
		"MODE: unknown value `Distribute`; did you mean `Distributed`?")
}

// Whatever a document holds, an error points into it.
func TestErrorsPointIntoTheDocument(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{
			"(", ")", "[", "]", "{", "}", ",", ":", "cluster", "mode", "Some", "None", "1", "-1e9", "\"s\"", "r#\"r\"#", "'c'",
			"//c\n", "/*", "*/", "\n", "\t", "é", "\x00", "\\", "#![enable(x)]",
		})).Draw(t, "tokens"), rapid.SampledFrom([]string{"", " "}).Draw(t, "between"))
		_, err := decode(src)
		var e *Error
		if !errors.As(err, &e) {
			return
		}
		lines := strings.Split(src, "\n")
		if e.Span.Line < 1 || e.Span.Line > len(lines) || e.Span.Col < 1 || e.Span.Col > len([]rune(lines[e.Span.Line-1]))+1 {
			t.Fatalf("%q: place %d:%d is outside: %v", src, e.Span.Line, e.Span.Col, err)
		}
	})
}

func FuzzRON(f *testing.F) {
	seeds, err := os.ReadDir("testdata/corpus")
	require.NoError(f, err)
	require.NotEmpty(f, seeds)
	for _, s := range seeds {
		b, err := os.ReadFile("testdata/corpus/" + s.Name())
		require.NoError(f, err)
		corpus.Add(f, strings.TrimSuffix(s.Name(), ".ron"), b)
	}
	for name, s := range map[string]string{
		"nested": strings.Repeat("(a:", 200), "unclosed text": "(a: \"b", "raw text": "(text: r##\"a\"#b\"##)", "comments": "/* /* a */ */ // b\n(/*c*/)",
		"escape of no rune": "(text: \"\\u{110000}\")", "half a pair": "{\"text\": \"\\ud800\"}", "number too large": "(n: 99999999999999999999)", "not UTF-8": "(text: \"\xff\")",
	} {
		corpus.Add(f, name, []byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		v, err := Parse("fuzz.ron", src)
		if err == nil {
			_, err = Decode(v, &outer{})
		}
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("an error without a place: %v", err)
		}
	})
}
