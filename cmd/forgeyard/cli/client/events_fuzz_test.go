// Fuzzing of what a daemon answers: the event stream, and the document of a refusal.

package client

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/corpus"
)

func FuzzEventStream(f *testing.F) {
	const one = "id: AQ\nevent: job.queued\ndata: {\"kind\":\"job.queued\"}\n\n"
	for name, s := range map[string]string{
		"one": one, "heartbeat": "retry: 1000\nid: AR\n\n", "two and a beat": one + "retry: 1000\nid: AR\n\n" + strings.ReplaceAll(one, "AQ", "AS"), "cut in its data": one[:30], "cut before its end": one[:len(one)-1],
		"data of lines": "id: 1\ndata: a\ndata: b\ndata\n\n", "comment": ": hello\n\n", "no colon": "data\n\n", "Windows": strings.ReplaceAll(one, "\n", "\r\n"), "a carriage return inside": "id: a\rb\ndata: x\n\n",
		"nothing": "", "a long line": "data: " + strings.Repeat("x", 5000) + "\n\n", "NUL": "id: \x00\ndata: \x00\n\n",
	} {
		corpus.Add(f, name, []byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var got []Event
		s := &Events{After: "before", Each: func(e Event) error { got = append(got, e); return nil }}
		err := s.read(nil, bytes.NewReader(b))
		var broken *brokenError
		require.True(t, errors.As(err, &broken), "the stream never ends well: %v", err)
		size := 0
		for _, e := range got {
			require.NotNil(t, e.Data)
			require.NotContains(t, e.ID, "\n", "it becomes a header")
			size += len(e.Data)
		}
		require.LessOrEqual(t, size, len(b))
		if !bytes.Contains(b, []byte("id")) {
			require.Equal(t, "before", s.After)
		}
		if s.After != "before" { // what was read is not read again
			rest := &Events{After: s.After, Each: func(Event) error { return nil }}
			_, _, header := rest.request()
			require.Equal(t, s.After, header.Get("Last-Event-Id"))
		}
	})
}

func FuzzRefusal(f *testing.F) {
	for name, s := range map[string]string{
		"problem": `{"apiVersion":"forgeyard.dev/v1","kind":"Error","error":{"code":"FY-RUN-004","kind":"Internal","message":"m","hint":"h","retryable":true,"request_id":"r"}}`,
		"no code": `{"error":{"message":"m"}}`, "HTML": "<html>502</html>", "nothing": "", "null": "null", "a list": "[]", "another type": `{"error":"no"}`, "nested": strings.Repeat(`{"error":`, 3000), "not UTF-8": "{\"error\":{\"code\":\"\xff\"}}",
	} {
		corpus.Add(f, name, []byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := refused(&http.Response{StatusCode: http.StatusBadGateway, Status: "502 Bad Gateway", Request: httptest.NewRequest(http.MethodGet, "/v1/runs", nil)}, b)
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, http.StatusBadGateway, e.Status)
		require.NotEmpty(t, e.Problem.Code, "every refusal has a code")
		require.NotEmpty(t, err.Error())
	})
}
