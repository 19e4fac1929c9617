// Fuzzing of the trace's reader: a killed writer leaves any beginning of a file.

package trace

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/corpus"
)

func FuzzRead(f *testing.F) {
	line := func(e Event) string {
		b, err := json.Marshal(e)
		require.NoError(f, err)
		return string(b) + "\n"
	}
	grant := line(Event{Mono: 5, Node: fsm.NodeID{15: 1}, Incarnation: fsm.IncarnationID{15: 2}, Kind: Grant, Role: fsm.SchedulerLeader, Generation: 1, Epoch: 7})
	end := line(Event{Mono: 6, Kind: LoopEnd, Detail: "lease"})
	for name, s := range map[string]string{
		"two": grant + end, "cut": grant + end[:len(end)/2], "nothing": "", "an empty line": grant + "\n" + end, "null": "null\n", "a number": "7\n", "Windows": strings.ReplaceAll(grant+end, "\n", "\r\n"),
		"a long line": line(Event{Kind: Exit, Detail: strings.Repeat("x", maxLine)}), "unknown role": `{"mono_ns":1,"kind":"grant","role":"Nobody"}` + "\n", "two on a line": grant[:len(grant)-1] + end,
	} {
		corpus.Add(f, name, []byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		events, err := read(bytes.NewReader(b))
		require.LessOrEqual(t, len(events), bytes.Count(b, []byte("\n")))
		if err != nil {
			return
		}
		require.Len(t, events, bytes.Count(b, []byte("\n")), "only a line without its end is left out")
		var out bytes.Buffer
		for _, e := range events {
			text, err := json.Marshal(e)
			require.NoError(t, err)
			out.Write(append(text, '\n'))
		}
		if out.Len() > maxLine/2 {
			return // text that is not UTF-8 grows
		}
		again, err := read(&out)
		require.NoError(t, err)
		require.Equal(t, events, again)
	})
}
