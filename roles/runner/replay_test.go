// Idempotency over HTTP: a submission that is repeated gets its first answer, whoever else uses the key and whatever changed since.

package runner_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// desk is the routes of runs, asked by callers of different names.
type desk struct {
	*plane
	mux *http.ServeMux
}

func newDesk(p *plane, cfg runner.APIConfig) desk {
	cfg.Store = p.store
	d := desk{plane: p, mux: http.NewServeMux()}
	for _, r := range runner.NewAPI(cfg).Routes() {
		d.mux.Handle(r.Method+" "+r.Pattern, r.Handler)
	}
	return d
}

func (d desk) submit(caller, key, spec string) (status int, run string, answer *httptest.ResponseRecorder) {
	d.Helper()
	r := httptest.NewRequestWithContext(d.Context(), http.MethodPost, "/v1/runs", strings.NewReader(spec))
	r.Header.Set(runner.IdempotencyHeader, key)
	r = r.WithContext(access.WithCaller(r.Context(), access.NewCaller(access.ByToken, caller, "jti", access.RunSubmit)))
	w := httptest.NewRecorder()
	d.mux.ServeHTTP(w, r)
	var doc runner.RunDocument
	if w.Code < 300 {
		require.NoError(d, json.Unmarshal(w.Body.Bytes(), &doc), w.Body.String())
	}
	return w.Code, doc.ID, w
}

// TestReplayAtAFullQueue: what was accepted is answered as before when there is
// room for nothing new; a new run and a changed one are refused, each for its own reason.
func TestReplayAtAFullQueue(t *testing.T) {
	d := newDesk(newPlane(t), runner.APIConfig{Limits: runner.QueueLimits{Queue: 2}})
	const spec = `{"name":"r","jobs":[{"name":"a","argv":["x"]},{"name":"b","argv":["x"]}]}`
	status, first, _ := d.submit("ann", "k", spec)
	require.Equal(t, http.StatusCreated, status)
	status, _, w := d.submit("ann", "other", spec)
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Contains(t, w.Body.String(), "FY-RUN-007")
	require.NotEmpty(t, w.Header().Get("Retry-After"))

	status, again, w := d.submit("ann", "k", spec)
	require.Equal(t, http.StatusOK, status, w.Body.String())
	require.Equal(t, first, again)
	require.Equal(t, "/v1/runs/"+first, w.Header().Get("Location"))

	status, _, w = d.submit("ann", "k", strings.Replace(spec, `"r"`, `"changed"`, 1))
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, w.Body.String(), "FY-RUN-002")
	require.Equal(t, 1, one[int](d.plane, `SELECT count(*) FROM forge.runs`))
}

// TestKeysOfCallers never meet: the same key of another caller is another run,
// and tells nothing of the first one's.
func TestKeysOfCallers(t *testing.T) {
	d := newDesk(newPlane(t), runner.APIConfig{})
	const spec = `{"name":"r","jobs":[{"name":"a","argv":["x"]}]}`
	status, ann, _ := d.submit("ann", "k", spec)
	require.Equal(t, http.StatusCreated, status)
	status, bob, _ := d.submit("bob", "k", spec)
	require.Equal(t, http.StatusCreated, status)
	require.NotEqual(t, ann, bob)
	status, cy, w := d.submit("cy", "k", strings.Replace(spec, `"r"`, `"other"`, 1))
	require.Equal(t, http.StatusCreated, status, w.Body.String())
	for caller, want := range map[string]string{"ann": ann, "bob": bob} {
		status, again, _ := d.submit(caller, "k", spec)
		require.Equal(t, []any{http.StatusOK, want}, []any{status, again})
	}
	require.NotContains(t, []string{ann, bob}, cy)
}

// TestOldSource: a run may name a source that was uploaded long ago. It is
// stored anew first, so that no collection takes it from under the run; and the
// replay of a run needs its source no more.
func TestOldSource(t *testing.T) {
	dir := t.TempDir()
	blobs, err := artifact.Open(t.Context(), "file://"+dir, cluster.NewClusterID(), artifact.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, blobs.Close()) })
	d := newDesk(newPlane(t), runner.APIConfig{Blobs: blobs})
	stored, err := blobs.Put(t.Context(), strings.NewReader("a tree"), artifact.Want{})
	require.NoError(t, err)
	hex := strings.TrimPrefix(stored.Digest.String(), "sha256:")
	path := dir + "/blobs/sha256/" + hex[:2] + "/" + hex[2:]
	long := time.Now().Add(-100 * artifact.Fresh)
	require.NoError(t, os.Chtimes(path, long, long))

	spec := `{"name":"r","source":"` + stored.Digest.String() + `","jobs":[{"name":"a","argv":["x"]}]}`
	status, run, w := d.submit("ann", "k", spec)
	require.Equal(t, http.StatusCreated, status, w.Body.String())
	now, err := blobs.Stat(t.Context(), stored.Digest)
	require.NoError(t, err)
	require.Less(t, time.Since(now.Modified), artifact.Fresh)

	gone, err := blobs.Delete(t.Context(), stored.Digest, time.Now().Add(artifact.Fresh))
	require.NoError(t, err)
	require.True(t, gone)
	status, again, _ := d.submit("ann", "k", spec)
	require.Equal(t, []any{http.StatusOK, run}, []any{status, again})
	status, _, w = d.submit("ann", "new", spec)
	require.Equal(t, http.StatusUnprocessableEntity, status)
	require.Contains(t, w.Body.String(), "FY-RUN-004")
}
