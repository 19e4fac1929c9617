// The output contract: every format of every read, widths, colour, and clean pipes.

package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// reads are the commands that print what a daemon answers, by their golden files' name.
func reads() map[string][]string {
	return map[string][]string{
		"status":  {"cluster", "status"},
		"members": {"cluster", "members"},
		"roles":   {"cluster", "roles"},
		"actors":  {"actors"},
		"runs":    {"run", "list"},
		"run":     {"run", "show", "01JDVW0000000000000000RUN1"},
		"waiting": {"run", "show", "release"},
		"why":     {"run", "why", "release"},
		"left":    {"run", "artifacts", waitingRun},
		"agents":  {"agents", "list"},
		"agent":   {"agents", "show", "agent-1"},
		"queues":  {"queues"},
		"gc":      {"gc", "status"},
	}
}

func TestCLI(t *testing.T) {
	endpoint := everything().serve(t)
	for name, args := range reads() {
		t.Run(name, func(t *testing.T) {
			for _, width := range []int{60, 80, 120} {
				s := invoke(t, []string{endpoint}, at(width), append(args, "--color=never")...)
				require.Zero(t, s.code, s.err.String())
				golden(t, fmt.Sprintf("%s.%d.txt", name, width), s.out.String())
			}
			piped := invoke(t, []string{endpoint}, nil, args...)
			golden(t, name+".pipe.txt", piped.out.String())
			wide := invoke(t, []string{endpoint}, at(60), append(args, "-o", "wide", "--no-color")...)
			golden(t, name+".wide.txt", wide.out.String())
			doc := invoke(t, []string{endpoint}, nil, append(args, "-o", "json")...)
			golden(t, name+".json", doc.out.String())
			text := invoke(t, []string{endpoint}, nil, append(args, "-o", "yaml")...)
			golden(t, name+".yaml", text.out.String())
			names := invoke(t, []string{endpoint}, nil, append(args, "-o", "name")...)
			golden(t, name+".name.txt", names.out.String())

			var fromJSON, fromYAML map[string]any
			require.NoError(t, json.Unmarshal(doc.out.Bytes(), &fromJSON))
			require.NoError(t, yaml.Unmarshal(text.out.Bytes(), &fromYAML))
			require.Equal(t, apiVersion, fromJSON["apiVersion"])
			require.NotEmpty(t, fromJSON["kind"])
			require.Equal(t, len(fromJSON), len(fromYAML), "both formats hold the same")
		})
	}
}

func TestTablesFitTheTerminal(t *testing.T) {
	endpoint := everything().serve(t)
	for _, name := range []string{"status", "members", "roles", "actors", "runs", "waiting", "why", "left", "agents", "agent", "queues", "gc"} {
		s := invoke(t, []string{endpoint}, at(80), append(reads()[name], "--color=never")...)
		for line := range strings.SplitSeq(s.out.String(), "\n") {
			require.LessOrEqual(t, len([]rune(line)), 80, "%s: %s", name, line)
		}
	}
}

func TestColour(t *testing.T) {
	endpoint := everything().serve(t)
	status := func(env string, tty bool, args ...string) string {
		return invoke(t, []string{endpoint}, func(s *screen) {
			s.OutTTY, s.Environ = tty, append(s.Environ, strings.Fields(env)...)
		}, append([]string{"cluster", "status"}, args...)...).out.String()
	}
	for name, c := range map[string]struct {
		env    string
		tty    bool
		args   []string
		colour bool
	}{
		"terminal":          {"TERM=xterm", true, nil, true},
		"pipe":              {"TERM=xterm", false, nil, false},
		"NO_COLOR":          {"TERM=xterm NO_COLOR=1", true, nil, false},
		"empty NO_COLOR":    {"TERM=xterm NO_COLOR=", true, nil, true},
		"dumb terminal":     {"TERM=dumb", true, nil, false},
		"--no-color":        {"TERM=xterm", true, []string{"--no-color"}, false},
		"forced in a pipe":  {"CLICOLOR_FORCE=1", false, nil, true},
		"not forced":        {"CLICOLOR_FORCE=0", false, nil, false},
		"NO_COLOR wins":     {"CLICOLOR_FORCE=1 NO_COLOR=1", false, nil, false},
		"--color=always":    {"NO_COLOR=1", false, []string{"--color=always"}, true},
		"never in a format": {"TERM=xterm", true, []string{"-o", "json"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.colour, strings.Contains(status(c.env, c.tty, c.args...), "\x1b["))
		})
	}
	coloured := status("", false, "--color=always")
	for _, code := range []string{"\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"} {
		coloured = strings.ReplaceAll(coloured, code, "")
	}
	require.Equal(t, status("", false), coloured, "colour is never the only carrier")
}

// Nothing that a daemon or a job says may steer the terminal.
func TestNoEscapeFromOutside(t *testing.T) {
	f := everything()
	s := degraded()
	s.Reasons, s.ClusterName, s.Members[0].Name = []string{"evil \x1b[2J\a"}, "a\x1b]0;b\a", "x\ny\u202e"
	f["GET /v1/cluster/status"] = s
	endpoint := f.serve(t)
	for _, args := range [][]string{{"cluster", "status"}, {"run", "show", "01JDVW0000000000000000RUN1"}, {"cluster", "status", "-o", "name"}} {
		out := invoke(t, []string{endpoint}, nil, args...).out.String()
		require.NotEmpty(t, out)
		require.NotContains(t, out, "\x1b")
		require.NotContains(t, out, "\a")
		require.NotContains(t, out, "\u202e")
	}
}

func TestEmptyAnswers(t *testing.T) {
	endpoint := fleet{"GET /v1/runs": map[string]any{"runs": []any{}}, "GET /v1/cluster/members": map[string]any{}}.serve(t)
	s := invoke(t, []string{endpoint}, nil, "run", "list")
	require.Equal(t, "ID  NAME  STATE  DONE  FAILED  QUEUE  SUBMITTED\n", s.out.String())
	s = invoke(t, []string{endpoint}, nil, "run", "list", "-o", "name")
	require.Empty(t, s.out.String())
	require.Zero(t, s.code)
}

func TestSpan(t *testing.T) {
	for ms, want := range map[int64]string{
		-1: "unknown", 0: "0 ms", 850: "850 ms", 3200: "3.2 s", 250_000: "4m10s", 11_100_000: "3h05m", 12 * 86_400_000: "12d",
	} {
		require.Equal(t, want, span(ms))
	}
}
