// What dev prints: it fits a terminal, and -o gives data.

package dev

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// running is a fleet as status sees it.
func running() Status {
	dir := "/tmp/forgeyard-dev-1234567890"
	s := Status{APIVersion: "forgeyard.dev/v1", Kind: "DevStatus", Dir: dir}
	for _, name := range []string{"node-a", "node-b", "node-c"} {
		s.Nodes = append(s.Nodes, NodeStatus{
			Name: name, State: "running", PID: 4194304, Endpoint: "http://127.0.0.1:65535", Log: dir + "/" + name + "/daemon.log",
		})
	}
	s.Nodes[1].State, s.Nodes[1].PID, s.Nodes[2].Cut = "dead", 0, true
	return s
}

func TestTextsFitTheTerminal(t *testing.T) {
	var status strings.Builder
	require.NoError(t, printStatus(&status, running(), "table"))
	lines := strings.Split(status.String(), "\n")
	require.Regexp(t, `^node-b +dead +- +ok `, lines[2])
	require.Regexp(t, `^node-c +running +4194304 +cut `, lines[3])
	for _, s := range suggestions("node-a", "node-c") {
		lines = append(lines, s.line())
	}
	lines = append(lines, keepText(true, ""))
	require.Greater(t, len(lines), 10)
	for _, line := range lines {
		require.LessOrEqual(t, len([]rune(line)), 80, line)
	}
}

func TestStatusAsData(t *testing.T) {
	for _, format := range []string{"json", "yaml"} { // JSON is YAML
		var out strings.Builder
		require.NoError(t, printStatus(&out, running(), format))
		var got Status
		require.NoError(t, json.Unmarshal([]byte(out.String()), &got))
		require.Equal(t, running(), got)
	}
	var names strings.Builder
	require.NoError(t, printStatus(&names, running(), "name"))
	require.Equal(t, "node/node-a\nnode/node-b\nnode/node-c\n", names.String())

	root := Command()
	root.PersistentFlags().StringP("output", "o", "table", "")
	status, _, err := root.Find([]string{"status"})
	require.NoError(t, err)
	require.NoError(t, status.ParseFlags([]string{"-o", "json"}))
	require.Equal(t, "json", outputFormat(status))
}
