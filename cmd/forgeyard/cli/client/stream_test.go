// Streams in virtual time: how long silence and outages are borne.

package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// answer is a transport that answers without a network.
type answer func(*http.Request) (*http.Response, error)

func (f answer) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func clientOf(daemons ...answer) *Client {
	c := &Client{}
	for _, d := range daemons {
		c.endpoints = append(c.endpoints, &endpoint{name: "d", base: "http://d", http: &http.Client{Transport: d}})
	}
	return c
}

// silent answers and then says nothing until the client has gone.
func silent(r *http.Request) (*http.Response, error) {
	pr, pw := io.Pipe()
	context.AfterFunc(r.Context(), func() { pw.CloseWithError(r.Context().Err()) })
	return &http.Response{StatusCode: http.StatusOK, Body: pr}, nil
}

func gone(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
}

// hung takes the request and never answers.
func hung(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func streamTo(read func(*http.Response, io.Reader) error) Stream {
	return Stream{
		Request: func() (string, url.Values, http.Header) { return "/x", nil, nil },
		Read:    read, Quiet: 10 * time.Second, Patience: time.Minute,
	}
}

func drain(_ *http.Response, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// A log of a job that says nothing for an hour is no outage.
func TestSilenceIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		count := func(r *http.Request) (*http.Response, error) { asked++; return silent(r) }
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := clientOf(count, gone, count).Follow(ctx, streamTo(drain))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.InDelta(t, 360, asked, 5, "each silence of ten seconds is asked about elsewhere")
	})
}

func TestAnOutageEndsTheStreamAfterItsPatience(t *testing.T) {
	for name, daemon := range map[string]answer{"gone": gone, "hung": hung} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := clientOf(daemon, gone).Follow(t.Context(), streamTo(drain))
			var failed *Error
			require.ErrorAs(t, err, &failed, name)
			require.Equal(t, CodeUnreachable, failed.Problem.Code)
			require.InDelta(t, time.Minute, time.Since(began), float64(10*time.Second))
			require.NotContains(t, failed.Problem.Message, "context canceled")
		})
	}
}

func TestAHungDaemonIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		whole := func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}
		require.NoError(t, clientOf(hung, whole).Follow(t.Context(), streamTo(drain)))
		require.Equal(t, ReadTimeout, time.Since(began))
	})
}

func TestAnErrorOfTheReaderEndsTheStream(t *testing.T) {
	own := errors.New("the disk is full")
	whole := func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}
	err := clientOf(whole, whole).Follow(t.Context(), streamTo(func(*http.Response, io.Reader) error { return own }))
	require.ErrorIs(t, err, own)
}

// A change under a key goes on to the next daemon before the time for all is over.
func TestAHungDaemonDoesNotTakeTheTimeOfAllOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		note := func(f answer) answer {
			return func(r *http.Request) (*http.Response, error) {
				keys = append(keys, r.Header.Get(IdempotencyHeader))
				return f(r)
			}
		}
		whole := func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.NoError(t, clientOf(note(hung), note(whole)).Post(ctx, "/v1/runs", "k", struct{}{}, nil))
		require.Equal(t, []string{"k", "k"}, keys)
		err := clientOf(note(hung), note(whole)).Post(t.Context(), "/x", "k", struct{}{}, nil)
		require.NoError(t, err)
	})
}

// What answered once is asked first: a hung daemon slows the first call of a command, not each of them.
func TestTheEndpointThatAnsweredIsAskedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}
		c := clientOf(hung, gone, whole)
		began := time.Now()
		for range 5 {
			require.NoError(t, c.Get(t.Context(), "/x", nil, nil))
			require.NoError(t, c.Follow(t.Context(), streamTo(drain)))
		}
		require.Equal(t, ReadTimeout, time.Since(began))
	})
}
