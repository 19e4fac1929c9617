// What a wrong command line is told: what was expected, and what to type instead.

package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrongCommandLinesSayWhatIsExpected(t *testing.T) {
	dir := t.TempDir()
	for args, want := range map[string]string{
		"actors x y":                             "error: forgeyard actors takes no arguments, 2 given\n  now: leave them out; its flags: forgeyard actors --help\n",
		"version x":                              "error: forgeyard version takes no arguments, 1 given\n  now: leave them out; its flags: forgeyard version --help\n",
		"run show":                               "error: forgeyard run show takes RUN, 0 given\n  now: usage: forgeyard run show RUN\n",
		"actors --depth abc":                     "error: --depth takes a whole number, not \"abc\"\n  now: see: forgeyard actors --help\n",
		"run list --limit 999999999999999999999": "error: --limit takes a smaller number, not \"999999999999999999999\"\n  now: see: forgeyard run list --help\n",
		"cluster status --timeout soon":          "error: --timeout takes a duration such as 30s, 5m or 1h30m, not \"soon\"\n  now: see: forgeyard cluster status --help\n",
		"cluster status --watch=maybe":           "error: --watch takes true or false, not \"maybe\"\n  now: see: forgeyard cluster status --help\n",
		"cluster status --bogus":                 "error: unknown flag: --bogus\n  now: see: forgeyard cluster status --help\n",
		"run submit " + dir + "/no.ron":          "error: the run's file cannot be read: open " + dir + "/no.ron: no such file or directory\n  now: " + fileHint + "\n",
		"run submit " + dir:                      "error: the run's file cannot be read: read " + dir + ": is a directory\n  now: " + fileHint + "\n",
	} {
		t.Run(args, func(t *testing.T) {
			s := invoke(t, nil, nil, strings.Fields(args)...)
			require.Equal(t, want, s.err.String())
			require.Equal(t, ExitUsage, s.code)
			s = invoke(t, nil, nil, append(strings.Fields(args), "-o", "json")...)
			require.Contains(t, s.err.String(), codeUsage)
		})
	}
}

func TestWantedFormat(t *testing.T) {
	for args, want := range map[string]string{
		"x -o json": "json", "x -oyaml": "yaml", "x -o=json": "json", "x --output yaml": "yaml", "x --output=json": "json",
		"x json": "", "x -o": "", "x -o wide": "", "submit -- y -o json": "", "": "",
	} {
		require.Equal(t, want, wantedFormat(strings.Fields(args)), args)
	}
}
