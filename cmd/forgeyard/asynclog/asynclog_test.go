// A log whose reader stops, and goes on.

package asynclog

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// held takes a line whenever it is let.
type held struct {
	let  chan struct{}
	text strings.Builder
}

func (h *held) Write(p []byte) (int, error) {
	<-h.let
	return h.text.Write(p)
}

func TestLogThatNobodyReadsStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &held{let: make(chan struct{})}
		var w *Writer
		w = New(out, func(lost uint64) { fmt.Fprintf(w, "lost %d\n", lost) })
		began := time.Now()
		for i := range 2 * queued {
			fmt.Fprintf(w, "line %d\n", i)
		}
		require.Equal(t, began, time.Now(), "whoever logs waits for the reader")
		w.Flush(time.Second)
		require.Equal(t, time.Second, time.Since(began), "the end of a process waits for the reader")

		close(out.let)
		w.Flush(time.Minute)
		w.Close(time.Minute)
		w.Close(time.Minute)
		require.Equal(t, time.Second, time.Since(began))
		lines := strings.Split(strings.TrimSpace(out.text.String()), "\n")
		var missing, told int
		for _, l := range lines {
			n := 0
			if _, err := fmt.Sscanf(l, "lost %d", &n); err == nil {
				missing += n
				continue
			}
			told++
		}
		require.Equal(t, 2*queued, told+missing, "each line is there or counted")
		require.GreaterOrEqual(t, told, queued)
		require.NotZero(t, missing)
	})
}

func TestLogInOrder(t *testing.T) {
	var out strings.Builder
	w := New(&out, func(uint64) { t.Error("lines were lost") })
	var want strings.Builder
	for i := range 100 {
		fmt.Fprintln(io.MultiWriter(w, &want), i)
	}
	w.Close(time.Minute)
	require.Equal(t, want.String(), out.String())
}
