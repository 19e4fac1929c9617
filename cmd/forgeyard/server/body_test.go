// The one limit of a request's body: the configured one, below and above what is used without a configuration.

package server

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// TestBodyLimit: a body of the limit's size passes, one byte more is refused
// with the limit in its answer, whatever the byte is, on both listeners.
func TestBodyLimit(t *testing.T) {
	read := func(w http.ResponseWriter, r *http.Request) {
		var v string
		if err := access.ReadJSON(w, r, &v); err != nil {
			access.WriteError(w, err)
			return
		}
		access.WriteJSON(w, http.StatusOK, len(v))
	}
	for name, c := range map[string]struct {
		configured int64
		limit      int
		says       string
	}{
		"none":  {0, access.MaxBody, "larger than 1048576 bytes"},
		"small": {1 << 10, 1 << 10, "larger than 1024 bytes"},
		"large": {5 << 20, 5 << 20, "larger than 5242880 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, base, admin := serve(t, Config{MaxBody: c.configured, Routes: []access.Route{route("POST", "/x", read)}})
			for client, url := range map[*http.Client]string{http.DefaultClient: base + "/x", admin: "http://admin/x"} {
				for body, want := range map[string]int{
					`"` + strings.Repeat("a", c.limit-2) + `"`:   http.StatusOK,
					`"` + strings.Repeat("a", c.limit-1) + `"`:   http.StatusRequestEntityTooLarge,
					`"a"` + strings.Repeat(" ", c.limit-3):       http.StatusOK,
					`"a"` + strings.Repeat(" ", c.limit-2):       http.StatusRequestEntityTooLarge,
					`"a"` + strings.Repeat(" ", c.limit-4) + "b": http.StatusBadRequest,
				} {
					resp, text := send(t, client, "POST", url, func(r *http.Request) {
						r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
					})
					require.Equal(t, want, resp.StatusCode, "%d bytes: %s", len(body), text)
					if want == http.StatusRequestEntityTooLarge {
						p := problem(t, text)
						require.Equal(t, "FY-API-003", p.Code)
						require.Contains(t, p.Message, c.says)
					}
				}
			}
		})
	}
}

// TestBodyIsUnicode: text that a decoder would silently replace is refused, wherever it stands; what only looks like it passes.
func TestBodyIsUnicode(t *testing.T) {
	var got []string
	read := func(w http.ResponseWriter, r *http.Request) {
		got = nil
		if err := access.ReadJSON(w, r, &got); err != nil {
			access.WriteError(w, err)
			return
		}
		access.WriteJSON(w, http.StatusOK, len(got))
	}
	_, base, _ := serve(t, Config{Routes: []access.Route{route("POST", "/x", read)}})
	for body, want := range map[string]string{
		"[\"rm\",\"\xff\"]": "", "[\"\xed\xa0\x80\"]": "", `["\ud800"]`: "", `["\udc00\ud800"]`: "", `["\ud83d\u0041"]`: "", `["\\\ud83d"]`: "",
		`["\ud83d\ude80"]`: "\U0001f680", `["\\ud800"]`: `\ud800`, `["\n\u00e9\ufffd"]`: "\n\u00e9\ufffd", "[\"\ufffd\"]": "\ufffd",
	} {
		resp, text := send(t, http.DefaultClient, "POST", base+"/x", func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		})
		if want == "" {
			require.Equal(t, http.StatusBadRequest, resp.StatusCode, "%q: %s", body, text)
			require.Equal(t, "FY-API-001", problem(t, text).Code)
			continue
		}
		require.Equal(t, http.StatusOK, resp.StatusCode, "%q: %s", body, text)
		require.Equal(t, []string{want}, got)
	}
}
