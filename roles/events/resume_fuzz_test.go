// Fuzzing of where a client says it left off: the header of a browser's reconnect and the parameter.

package events

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/testkit/corpus"
)

func FuzzResume(f *testing.F) {
	a, b := Cursor{System: 1, Timeline: 2, XID: 3, Seq: 4}.String(), Cursor{System: 1, Timeline: 2, XID: 9, Seq: 1}.String()
	corpus.Add(f, "header", a, "")
	corpus.Add(f, "parameter", "", b)
	corpus.Add(f, "both", a, b)
	corpus.Add(f, "neither", "", "")
	corpus.Add(f, "rubbish goes before a cursor", "0", b)
	corpus.Add(f, "a number", "17", "")
	corpus.Add(f, "NUL", "\x00", "\x00")
	f.Fuzz(func(t *testing.T, header, after string) {
		r := httptest.NewRequest(http.MethodGet, "/v1/events?"+url.Values{"after": {after}}.Encode(), nil)
		r.Header["Last-Event-Id"] = []string{header}
		c, err := resume(r)
		text := header
		if text == "" {
			text = after
		}
		switch {
		case text == "":
			require.ErrorIs(t, err, errNoCursor)
		case err != nil:
			status, _ := access.Explain(err)
			require.Equal(t, http.StatusBadRequest, status)
		default:
			require.Equal(t, text, c.String(), "the header goes before the parameter")
		}
	})
}
