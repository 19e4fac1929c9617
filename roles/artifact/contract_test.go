// What every store promises.

package artifact

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
)

func TestStoredBytesComeBack(t *testing.T) {
	eachStore(t, func(t *testing.T, r *rig) {
		for i, n := range []int{0, 1, spoolAbove - 1, spoolAbove, spoolAbove + 1, 17 << 20} {
			b := content(i, n)
			d := put(t, r, b)
			holds(t, r, b)
			blob, err := r.Stat(t.Context(), d)
			require.NoError(t, err)
			require.EqualValues(t, n, blob.Size)
			now, err := r.Now(t.Context())
			require.NoError(t, err)
			require.WithinDuration(t, now, blob.Modified, time.Minute)
		}
		require.Len(t, all(t, r), 6)
		require.NoError(t, r.Health(t.Context()))
	})
}

func TestMissingBlob(t *testing.T) {
	eachStore(t, func(t *testing.T, r *rig) {
		_, _, err := r.Get(t.Context(), DigestOf([]byte("never")))
		require.ErrorIs(t, err, ErrMissing)
		require.False(t, Retryable(err))
		_, err = r.Stat(t.Context(), DigestOf([]byte("never")))
		require.ErrorIs(t, err, ErrMissing)
		gone, err := r.Delete(t.Context(), DigestOf([]byte("never")), time.Now())
		require.NoError(t, err)
		require.True(t, gone)
	})
}

func TestRefusedPutStoresNothing(t *testing.T) {
	failure := errors.New("the client went away")
	eachStore(t, func(t *testing.T, r *rig) {
		for name, c := range map[string]struct {
			source io.Reader
			want   Want
			err    error
		}{
			"other digest":       {bytes.NewReader([]byte("abc")), Want{Digest: DigestOf([]byte("abd"))}, ErrMismatch},
			"too large":          {bytes.NewReader([]byte("abcd")), Want{Limit: 3}, ErrTooLarge},
			"too large by far":   {bytes.NewReader(content(1, spoolAbove*2)), Want{Limit: spoolAbove + 5}, ErrTooLarge},
			"source fails":       {broken([]byte("abc"), failure), Want{}, failure},
			"large source fails": {broken(content(2, spoolAbove*2), failure), Want{}, failure},
		} {
			_, err := r.Put(t.Context(), c.source, c.want)
			require.ErrorIs(t, err, c.err, name)
			require.False(t, Retryable(err), name)
		}
		_, err := r.Put(ctxDone(), bytes.NewReader([]byte("abc")), Want{})
		require.Error(t, err)
		require.Empty(t, all(t, r))
		b := []byte("abc")
		_, err = r.Put(t.Context(), bytes.NewReader(b), Want{Digest: DigestOf(b), Limit: 3})
		require.NoError(t, err)
		holds(t, r, b)
	})
}

func TestDaemonsStoreTheSameBlobAtOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, r *rig) {
		other, err := r.open(t, r.own)
		require.NoError(t, err)
		b := content(7, 100_000)
		var wg sync.WaitGroup
		errs := make([]error, 16)
		for i := range errs {
			wg.Go(func() {
				s := []Store{r, other}[i%2]
				if _, errs[i] = s.Put(t.Context(), bytes.NewReader(b), Want{}); errs[i] == nil {
					_, errs[i] = ReadAll(t.Context(), s, DigestOf(b), 100_000)
				}
			})
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
		require.Len(t, all(t, r), 1)
		holds(t, other, b)
	})
}

func TestListIsOrderedAndResumes(t *testing.T) {
	eachStore(t, func(t *testing.T, r *rig) {
		var want []Digest
		for i := range 120 {
			want = append(want, put(t, r, fmt.Appendf(nil, "blob %d", i)))
		}
		slices.SortFunc(want, Digest.Compare)
		var got []Digest
		for _, b := range all(t, r) {
			got = append(got, b.Digest)
		}
		require.Equal(t, want, got)

		got = nil
		stop := errors.New("enough")
		collect := func(b Blob) error {
			got = append(got, b.Digest)
			if len(got) == 7 {
				return stop
			}
			return nil
		}
		require.ErrorIs(t, r.List(t.Context(), want[49], collect), stop)
		require.Equal(t, want[50:57], got)
		require.Error(t, r.List(ctxDone(), Digest{}, func(Blob) error { return nil }))
	})
}

func TestDeleteSparesWhatIsYoung(t *testing.T) {
	eachStore(t, func(t *testing.T, r *rig) {
		old, young := []byte("old"), []byte("young")
		put(t, r, old)
		r.pass(3 * time.Hour)
		put(t, r, young)
		limit := cutoff(t, r, 2*time.Hour)
		gone, err := r.Delete(t.Context(), DigestOf(young), limit)
		require.NoError(t, err)
		require.False(t, gone)
		gone, err = r.Delete(t.Context(), DigestOf(old), limit)
		require.NoError(t, err)
		require.True(t, gone)
		holds(t, r, young)
		_, err = r.Stat(t.Context(), DigestOf(old))
		require.ErrorIs(t, err, ErrMissing)
		require.Len(t, all(t, r), 1)
	})
}

func TestPutRenewsAnOldBlob(t *testing.T) {
	eachStore(t, func(t *testing.T, r *rig) {
		for name, renew := range map[string]func(b []byte) error{
			"put": func(b []byte) error {
				_, err := r.Put(t.Context(), bytes.NewReader(b), Want{})
				return err
			},
			"renew": func(b []byte) error {
				_, err := Renew(t.Context(), r, DigestOf(b))
				return err
			},
		} {
			b := []byte(name)
			put(t, r, b)
			first := all(t, r)
			require.NoError(t, renew(b)) // nothing to do
			require.Equal(t, first, all(t, r), "a fresh blob is not stored anew")
			r.pass(3 * time.Hour)
			require.NoError(t, renew(b))
			gone, err := r.Delete(t.Context(), DigestOf(b), cutoff(t, r, MinGrace))
			require.NoError(t, err)
			require.False(t, gone, "%s: a blob just stored again was deleted", name)
			holds(t, r, b)
			_, err = r.Tidy(t.Context(), cutoff(t, r, MinGrace))
			require.NoError(t, err)
			holds(t, r, b)
			r.pass(3 * time.Hour)
			gone, err = r.Delete(t.Context(), DigestOf(b), cutoff(t, r, MinGrace))
			require.NoError(t, err)
			require.True(t, gone)
			require.Empty(t, all(t, r))
		}
		_, err := Renew(t.Context(), r, DigestOf([]byte("never")))
		require.ErrorIs(t, err, ErrMissing)
	})
}

// What Put has confirmed is there, however many deletions of the old copy run at the same time.
func TestDeleteNeverTakesWhatPutConfirmed(t *testing.T) {
	eachStore(t, func(t *testing.T, r *rig) {
		for round := range 60 {
			b := content(round, 2000)
			put(t, r, b)
			r.pass(3 * time.Hour)
			limit := cutoff(t, r, MinGrace)
			var wg sync.WaitGroup
			errs := make([]error, 4)
			for i := range errs {
				wg.Go(func() {
					if i > 0 {
						_, errs[i] = r.Delete(t.Context(), DigestOf(b), limit)
						return
					}
					if _, errs[i] = r.Put(t.Context(), bytes.NewReader(b), Want{}); errs[i] == nil {
						_, errs[i] = ReadAll(t.Context(), r, DigestOf(b), 2000)
					}
				})
			}
			wg.Wait()
			require.NoError(t, errors.Join(errs...), "round %d", round)
			holds(t, r, b)
		}
	})
}

func TestReadersOfADeletedBlobFinish(t *testing.T) {
	eachStore(t, func(t *testing.T, r *rig) {
		b := content(1, 3000)
		d := put(t, r, b)
		body, size, err := r.Get(t.Context(), d)
		require.NoError(t, err)
		defer body.Close()
		r.pass(3 * time.Hour)
		gone, err := r.Delete(t.Context(), d, cutoff(t, r, MinGrace))
		require.NoError(t, err)
		require.True(t, gone)
		got, err := io.ReadAll(body)
		require.NoError(t, err)
		require.EqualValues(t, len(got), size)
		require.Equal(t, b, got)
	})
}

func TestDamageIsFoundWhileReading(t *testing.T) {
	eachStore(t, func(t *testing.T, r *rig) {
		b := content(3, 10_000)
		d := put(t, r, b)
		r.rot(d)
		body, _, err := r.Get(t.Context(), d)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, body)
		require.ErrorIs(t, err, ErrCorrupt)
		require.False(t, Retryable(err))
		require.NoError(t, body.Close())
		_, err = ReadAll(t.Context(), r, d, 10_000)
		require.ErrorIs(t, err, ErrCorrupt)

		r.pass(Fresh)
		put(t, r, b) // heals it
		holds(t, r, b)
	})
}

func TestStoreBelongsToOneCluster(t *testing.T) {
	eachStore(t, func(t *testing.T, r *rig) {
		put(t, r, []byte("ours"))
		_, err := r.open(t, cluster.NewClusterID())
		require.ErrorIs(t, err, ErrOtherCluster)
		require.ErrorContains(t, err, r.own.String())
		again, err := r.open(t, r.own)
		require.NoError(t, err)
		holds(t, again, []byte("ours"))
	})
}

func TestClustersRaceForAnEmptyStore(t *testing.T) {
	eachStore(t, func(t *testing.T, r *rig) {
		empty := &rig{url: r.url + "x"} // another directory
		if s, ok := r.Store.(*s3Store); ok {
			empty.url = "s3://" + s.bucket + "/other?insecure=true&endpoint=" + s.client.EndpointURL().Host
		}
		errs := make([]error, 8)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { _, errs[i] = empty.open(t, cluster.NewClusterID()) })
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
				continue
			}
			require.ErrorIs(t, err, ErrOtherCluster)
		}
		require.Equal(t, 1, won)
	})
}

func TestURLs(t *testing.T) {
	own := cluster.NewClusterID()
	for _, url := range []string{
		"", "/var/blobs", "http://x/", "file://host/dir", "file:relative", "file:///dir?x=1", "s3://", "s3:///prefix",
		"s3://bucket?insecure=maybe", "s3://bucket?secret=1", "s3://key:" + secret + "@bucket/", "s3://bucket?endpoint=a/b", "%%" + secret,
	} {
		_, err := Open(t.Context(), url, own, Options{})
		require.ErrorIs(t, err, ErrURL, url)
		require.NotContains(t, err.Error(), secret)
	}
	_, err := Open(t.Context(), "file://"+t.TempDir(), [16]byte{}, Options{})
	require.Error(t, err)
}

func TestDigestText(t *testing.T) {
	d := DigestOf([]byte("x"))
	text, err := d.MarshalText()
	require.NoError(t, err)
	var back Digest
	require.NoError(t, back.UnmarshalText(text))
	require.Equal(t, d, back)
	fromBytes, err := DigestFromBytes(d.Bytes())
	require.NoError(t, err)
	require.Equal(t, d, fromBytes)
	require.True(t, Digest{}.IsZero())
	for _, bad := range []string{"", "sha256:", d.hex(), "sha256:" + d.hex()[1:], "sha256:" + d.hex() + "0", "sha256:" + string(bytes.ToUpper([]byte(d.hex()))), "md5:" + d.hex()} {
		_, err := ParseDigest(bad)
		require.Error(t, err, bad)
	}
	_, err = DigestFromBytes(nil)
	require.Error(t, err)
}
