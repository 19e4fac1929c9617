// What only the S3 store must survive: a server that fails, answers late, or receives a deletion late.

package artifact

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
)

func answer(w http.ResponseWriter, status int, code string) bool {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, `<Error><Code>%s</Code><Message>no</Message></Error>`, code)
	return true
}

// A deletion that was sent before the blob was stored again, and arrives after.
func TestLateDeletionTakesNoNewCopy(t *testing.T) {
	r := newS3Rig(t)
	b := []byte("content")
	d := put(t, r, b)
	r.pass(3 * time.Hour)
	limit := cutoff(t, r, MinGrace)

	sent, arrive := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.intercept(func(_ http.ResponseWriter, req *http.Request) bool {
		if req.Method == http.MethodDelete {
			once.Do(func() { close(sent) })
			<-arrive
		}
		return false
	})
	type result struct {
		gone bool
		err  error
	}
	deleted := make(chan result, 1)
	go func() {
		gone, err := r.Delete(context.Background(), d, limit)
		deleted <- result{gone, err}
	}()
	<-sent
	put(t, r, b)
	close(arrive)
	require.NoError(t, (<-deleted).err)
	holds(t, r, b)
	require.Len(t, all(t, r), 1)
}

func TestSurplusCopiesGo(t *testing.T) {
	r := newS3Rig(t)
	b := []byte("content")
	for range 3 {
		put(t, r, b)
		r.pass(3 * time.Hour)
	}
	copies, err := r.s3().copies(t.Context(), DigestOf(b))
	require.NoError(t, err)
	require.Len(t, copies, 3)
	require.EqualValues(t, 3*len(b), all(t, r)[0].Size, "what a deletion would free")
	n, err := r.Tidy(t.Context(), cutoff(t, r, MinGrace))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	copies, err = r.s3().copies(t.Context(), DigestOf(b))
	require.NoError(t, err)
	require.Len(t, copies, 1)
	holds(t, r, b)
}

func TestListingsLongerThanAPage(t *testing.T) {
	r := newS3Rig(t)
	for i := range 1050 {
		b := fmt.Appendf(nil, "blob %d", i)
		_, err := r.backend.PutObject(bucket, r.s3().folder(DigestOf(b))+"NONCE", map[string]string{"Last-Modified": r.clock.Now().Format(http.TimeFormat)}, bytes.NewReader(b), int64(len(b)), nil)
		require.NoError(t, err)
	}
	require.Len(t, all(t, r), 1050)
}

func TestShortFailuresAreRetried(t *testing.T) {
	r := newS3Rig(t)
	for i, b := range [][]byte{[]byte("small"), content(1, spoolAbove+1)} {
		var failures atomic.Int32
		r.intercept(func(w http.ResponseWriter, _ *http.Request) bool {
			return failures.Add(1) == 1 && answer(w, http.StatusServiceUnavailable, "SlowDown")
		})
		put(t, r, b)
		failures.Store(0)
		holds(t, r, b)
		require.Greater(t, failures.Load(), int32(1), "blob %d", i)
	}
}

func TestRefusalsAreNotRetryable(t *testing.T) {
	r := newS3Rig(t)
	for _, code := range []string{"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "NoSuchBucket"} {
		r.intercept(func(w http.ResponseWriter, _ *http.Request) bool { return answer(w, http.StatusForbidden, code) })
		_, err := r.Put(t.Context(), strings.NewReader("x"), Want{})
		require.ErrorIs(t, err, ErrRefused, code)
		require.False(t, Retryable(err))
		require.NotContains(t, err.Error(), secret)
		_, err = r.open(t, r.own)
		require.ErrorIs(t, err, ErrRefused, "a store that refuses its credentials is a mistake to be told at the start")
	}
}

func TestServerThatIsDown(t *testing.T) {
	r := newS3Rig(t)
	b := content(1, 5000)
	d := put(t, r, b)
	var down atomic.Bool
	down.Store(true)
	r.intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		if !down.Load() {
			return false
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close() // the answer is the broken connection
		}
		return true
	})
	began := time.Now()
	_, err := r.Put(t.Context(), bytes.NewReader(b), Want{})
	require.ErrorIs(t, err, ErrUnavailable)
	require.True(t, Retryable(err))
	_, _, err = r.Get(t.Context(), d)
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, r.Health(t.Context()), ErrUnavailable)
	require.Less(t, time.Since(began), 20*time.Second)

	late, err := r.open(t, r.own)
	require.NoError(t, err, "a daemon starts without its store")
	wrong, err := r.open(t, cluster.NewClusterID())
	require.NoError(t, err)
	down.Store(false)
	holds(t, late, b)
	_, _, err = wrong.Get(t.Context(), d)
	require.ErrorIs(t, err, ErrOtherCluster, "the cluster is checked as soon as the store answers")
}

func TestTransferThatBreaksOff(t *testing.T) {
	r := newS3Rig(t)
	b := content(1, 100_000)
	d := put(t, r, b)
	r.intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if req.Method != http.MethodGet || !strings.Contains(req.URL.Path, d.hex()[2:]) {
			return false
		}
		w.Header().Set("Content-Length", "100000")
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		_, _ = w.Write(b[:60_000])
		panic(http.ErrAbortHandler)
	})
	body, _, err := r.Get(t.Context(), d)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, body)
	require.ErrorIs(t, err, ErrUnavailable)
	require.NoError(t, body.Close())
}

func TestCallersDeadlineEndsACall(t *testing.T) {
	r := newS3Rig(t)
	release := make(chan struct{})
	r.intercept(func(http.ResponseWriter, *http.Request) bool { <-release; return false })
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := r.Stat(ctx, DigestOf(nil))
	require.ErrorIs(t, err, ErrUnavailable)
}

func TestAbandonedUploadsAreAborted(t *testing.T) {
	r := newS3Rig(t)
	key := r.s3().folder(DigestOf([]byte("x"))) + "NONCE"
	_, err := r.s3().client.NewMultipartUpload(t.Context(), bucket, key, putOptions())
	require.NoError(t, err)
	n, err := r.Tidy(t.Context(), cutoff(t, r, MinGrace))
	require.NoError(t, err)
	require.Zero(t, n)
	r.pass(3 * time.Hour)
	n, err = r.Tidy(t.Context(), cutoff(t, r, MinGrace))
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func TestSecretsAreNotShown(t *testing.T) {
	c := Credentials{AccessKey: "access", SecretKey: secret, SessionToken: secret}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, fmt.Sprintf(format, c), secret)
	}
}

func TestCredentialsFromTheEnvironment(t *testing.T) {
	r := newS3Rig(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "from-environment")
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	var used atomic.Bool
	r.intercept(func(_ http.ResponseWriter, req *http.Request) bool {
		if strings.Contains(req.Header.Get("Authorization"), "Credential=from-environment/") {
			used.Store(true)
		}
		return false
	})
	s, err := Open(t.Context(), r.url, r.own, Options{})
	require.NoError(t, err)
	require.True(t, used.Load())
	require.NoError(t, s.Close())
}
