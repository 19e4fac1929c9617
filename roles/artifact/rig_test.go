// The two stores under one set of controls: time passes, blobs rot, servers fail.

package artifact

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(putInto); dir != "" { // this process plays a daemon that is killed, see TestKilledWriterLeavesNoBlob
		putUntilKilled(dir)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

const soon = 30 * time.Second

// rig is a store whose surroundings a test controls.
type rig struct {
	Store
	url  string
	own  fsm.ClusterID
	pass func(time.Duration) // ages everything that is stored
	rot  func(Digest)        // flips a bit of a stored blob
}

func (r *rig) open(t testing.TB, own fsm.ClusterID) (Store, error) {
	s, err := Open(t.Context(), r.url, own, Options{Credentials: testCredentials, Spool: t.TempDir()})
	if err == nil {
		t.Cleanup(func() { require.NoError(t, s.Close()) })
	}
	return s, err
}

const secret = "hunter2-never-shown"

func testCredentials() (Credentials, error) {
	return Credentials{AccessKey: "access", SecretKey: secret}, nil
}

// eachStore runs a test of the contract against both.
func eachStore(t *testing.T, test func(*testing.T, *rig)) {
	t.Run("file", func(t *testing.T) { test(t, newFileRig(t)) })
	t.Run("s3", func(t *testing.T) { test(t, newS3Rig(t).rig) })
}

func newFileRig(t testing.TB) *rig {
	dir := t.TempDir()
	r := &rig{url: "file://" + dir, own: cluster.NewClusterID()}
	r.pass = func(d time.Duration) {
		for _, sub := range []string{"tmp", "trash", "blobs"} {
			require.NoError(t, filepath.WalkDir(filepath.Join(dir, sub), func(path string, e fs.DirEntry, err error) error {
				if err != nil || e.IsDir() {
					return err
				}
				info, err := e.Info()
				if err != nil {
					return err
				}
				return os.Chtimes(path, time.Time{}, info.ModTime().Add(-d))
			}))
		}
	}
	r.rot = func(d Digest) {
		path := r.Store.(*fileStore).path(d)
		info, err := os.Stat(path)
		require.NoError(t, err)
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		b[len(b)/2] ^= 1
		require.NoError(t, os.Chmod(path, 0o600))
		require.NoError(t, os.WriteFile(path, b, 0o600))
		require.NoError(t, os.Chtimes(path, time.Time{}, info.ModTime()))
	}
	var err error
	r.Store, err = r.open(t, r.own)
	require.NoError(t, err)
	return r
}

// s3Rig also shows each request to a test before it is served.
type s3Rig struct {
	*rig
	backend *s3mem.Backend
	server  *httptest.Server
	clock   *fakeClock
	mu      sync.Mutex
	before  func(w http.ResponseWriter, r *http.Request) (served bool)
}

const bucket = "yard"

func newS3Rig(t testing.TB) *s3Rig {
	s := &s3Rig{clock: &fakeClock{now: time.Date(2031, 1, 2, 3, 4, 5, 0, time.FixedZone("GMT", 0))}}
	s.backend = s3mem.New(s3mem.WithTimeSource(s.clock))
	require.NoError(t, s.backend.CreateBucket(bucket))
	fake := gofakes3.New(s.backend, gofakes3.WithTimeSource(s.clock), gofakes3.WithTimeSkewLimit(0)).Server()
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		before := s.before
		s.mu.Unlock()
		if before == nil || !before(w, r) {
			fake.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.server.Close)
	s.rig = &rig{url: "s3://" + bucket + "/some/prefix?insecure=true&endpoint=" + strings.TrimPrefix(s.server.URL, "http://"), own: cluster.NewClusterID()}
	s.pass = s.clock.advance
	s.rot = func(d Digest) {
		c, found, err := s.s3().newest(t.Context(), d)
		require.NoError(t, err)
		require.True(t, found)
		b, err := ReadAll(t.Context(), s.Store, d, 1<<30)
		require.NoError(t, err)
		b[len(b)/2] ^= 1
		_, err = s.backend.PutObject(bucket, c.key, map[string]string{"Last-Modified": c.Modified.Format(http.TimeFormat)}, bytes.NewReader(b), int64(len(b)), nil)
		require.NoError(t, err)
	}
	var err error
	s.Store, err = s.open(t, s.own)
	require.NoError(t, err)
	return s
}

func (s *s3Rig) s3() *s3Store { return s.Store.(*s3Store) }

func (s *s3Rig) intercept(f func(w http.ResponseWriter, r *http.Request) (served bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// fakeClock is the S3 server's.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func put(t testing.TB, s Store, b []byte) Digest {
	t.Helper()
	blob, err := s.Put(t.Context(), bytes.NewReader(b), Want{})
	require.NoError(t, err)
	require.Equal(t, DigestOf(b), blob.Digest)
	require.EqualValues(t, len(b), blob.Size)
	return blob.Digest
}

func holds(t testing.TB, s Store, b []byte) {
	t.Helper()
	got, err := ReadAll(t.Context(), s, DigestOf(b), int64(len(b)))
	require.NoError(t, err)
	require.True(t, bytes.Equal(b, got))
}

func all(t testing.TB, s Store) (blobs []Blob) {
	t.Helper()
	require.NoError(t, s.List(t.Context(), Digest{}, func(b Blob) error {
		blobs = append(blobs, b)
		return nil
	}))
	return blobs
}

// cutoff is the moment before which a collection of this grace would delete.
func cutoff(t testing.TB, s Store, grace time.Duration) time.Time {
	t.Helper()
	now, err := s.Now(t.Context())
	require.NoError(t, err)
	return now.Add(-grace)
}

// content is n bytes that do not compress and differ for each seed.
func content(seed, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b) // never fails
	return b
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// broken yields some bytes and then fails.
func broken(b []byte, err error) io.Reader {
	return io.MultiReader(bytes.NewReader(b), readerFunc(func([]byte) (int, error) { return 0, err }))
}

func ctxDone() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// ctxOf is the context of a test or of one check of a property.
func ctxOf(t require.TestingT) context.Context {
	if c, ok := t.(interface{ Context() context.Context }); ok {
		return c.Context()
	}
	return context.Background()
}
