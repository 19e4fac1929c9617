// The bound of a stored log against an agent that does not keep it.

package runner_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// TestLogIsBounded: a daemon stores a log to its limit, which is what honest
// agents keep and their last line, and refuses the next byte for good.
func TestLogIsBounded(t *testing.T) {
	d := newDepot(t)
	d.speak("a", "d1")
	lease := d.lease("a", nil)
	d.exec(`UPDATE forge.leases SET log_bytes = $2 WHERE id = $1::text::uuid`, lease, runner.MaxLog-10)
	refused := func(offset int64, n int) {
		t.Helper()
		s, _ := d.logStream("a", lease)
		require.NoError(t, s.Send(t.Context(), runner.Frame{Chunk: &runner.Chunk{Offset: offset, Data: []byte(strings.Repeat("x", n))}}))
		_, err := s.Receive(t.Context())
		var full *runner.Refused
		require.ErrorAs(t, err, &full)
		require.Equal(t, []any{"FY-LOG-004", false}, []any{full.Code, full.Retry}, full.Reason)
	}
	refused(runner.MaxLog-10, 11)
	s, at := d.logStream("a", lease)
	require.EqualValues(t, runner.MaxLog-10, at)
	require.EqualValues(t, runner.MaxLog, s.write(at, strings.Repeat("x", 10)))
	refused(runner.MaxLog, 1)
	refused(1<<63-1, 1)
	require.EqualValues(t, runner.MaxLog, one[int64](d.plane, `SELECT log_bytes FROM forge.leases WHERE id = $1::text::uuid`, lease))
	require.Equal(t, 1, one[int](d.plane, `SELECT count(*) FROM forge.log_chunks`))
}
