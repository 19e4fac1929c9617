// Uploads in virtual time: how long a daemon is waited for once it has all bytes.

package client

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// TestLargeUploadHasTimeToBeStored: a daemon that stores a large source for
// longer than a small one is given has it sent once; one that hangs is passed
// over, and one that takes no bytes sooner.
func TestLargeUploadHasTimeToBeStored(t *testing.T) {
	const size = 64 << 20
	most := uploadPause + access.StoreTime(size)
	source := Upload{Path: "/v1/sources", Size: size, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(make([]byte, size))), nil
	}}
	storesIn := func(d time.Duration) answer { // after the last byte
		return func(r *http.Request) (*http.Response, error) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return nil, err
			}
			select {
			case <-time.After(d):
				return &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody}, nil
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
	}
	for name, c := range map[string]struct {
		first answer
		took  time.Duration
	}{
		"slow store":    {storesIn(most - time.Second), most - time.Second},
		"hung store":    {storesIn(time.Hour), most},
		"takes nothing": {hung, uploadPause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				require.NoError(t, clientOf(c.first, storesIn(0)).Upload(t.Context(), source, nil))
				require.Equal(t, c.took, time.Since(began))
			})
		})
	}
}
