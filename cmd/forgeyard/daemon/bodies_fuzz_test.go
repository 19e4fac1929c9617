// Fuzzing of the bodies that the API reads, all kinds but a run, which roles/runner has.

package daemon

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/cluster/access/token"
	"github.com/forgeyard/forgeyard/cluster/membership"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/corpus"
)

// bodies makes one of each to decode into.
func bodies() []any {
	return []any{&runner.CancelRequest{}, &runner.AgentRequest{}, &membership.AddRequest{}, &membership.PromoteRequest{}, &token.Request{}, &artifact.CollectRequest{}}
}

// A body means one thing or is refused as a bad request, whichever route reads it.
func FuzzBodies(f *testing.F) {
	for name, v := range map[string]any{
		"cancel": runner.CancelRequest{Job: "vet", Reason: "too slow"}, "cancel all": runner.CancelRequest{}, "agent": runner.AgentRequest{Reason: "its disk fails"},
		"add": membership.AddRequest{Node: fsm.NodeID{15: 1}, Name: "node-d", TTL: "15m"}, "promote": membership.PromoteRequest{Node: "node-d"}, "collect": artifact.CollectRequest{DryRun: true},
		"token": token.Request{KeyID: "k", Subject: "ci", Permissions: []access.Permission{access.RunSubmit, access.RunRead}, TTLSeconds: 3600},
		// Times a second it is a minute and more, in 64 bits.
		"a token of ages": token.Request{KeyID: "k", Subject: "ci", Permissions: []access.Permission{access.RunSubmit}, TTLSeconds: -9223372037},
	} {
		b, err := json.Marshal(v)
		require.NoError(f, err)
		corpus.Add(f, name, string(b))
	}
	for name, s := range map[string]string{
		"nothing": "", "null": "null", "a field too many": `{"reason":"x","force":true}`, "two documents": `{"reason":"x"}{}`, "a list": `[{"reason":"x"}]`, "not UTF-8": "{\"reason\":\"\xff\"}",
		"half a pair": `{"reason":"\ud800"}`, "NUL": `{"job":"a\u0000","reason":"\u0000"}`, "an id too short": `{"node":"01M8"}`, "a number for a text": `{"ttl":15}`, "a large number": `{"ttl_seconds":1e99}`, "a reason twice": `{"reason":"a","reason":"b"}`,
		"another case": `{"REASON":"a"}`, "nested": strings.Repeat(`{"reason":`, 2000), "cut": `{"dry_run":tr`,
	} {
		corpus.Add(f, name, s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		read := func(text string, into any) error {
			return access.ReadJSON(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/x", strings.NewReader(text)), into)
		}
		for i, into := range bodies() {
			if err := read(s, into); err != nil {
				var fault *access.Fault
				require.ErrorAs(t, err, &fault)
				require.Equal(t, http.StatusBadRequest, fault.Status)
				continue
			}
			require.True(t, utf8.ValidString(s) && json.Valid([]byte(s)))
			again, err := json.Marshal(into)
			require.NoError(t, err)
			back := bodies()[i]
			require.NoError(t, read(string(again), back))
			// By its text: an empty list and none mean the same here.
			twice, err := json.Marshal(back)
			require.NoError(t, err)
			require.Equal(t, string(again), string(twice), reflect.TypeOf(into))
			if r, ok := into.(*token.Request); ok && r.Check() == nil {
				require.True(t, r.TTLSeconds >= int64(token.MinLifetime/time.Second) && r.TTLSeconds <= int64(token.MaxLifetime/time.Second), "a token for %d s", r.TTLSeconds)
			}
		}
	})
}
