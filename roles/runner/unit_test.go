// Small parts by themselves: endpoints, tails, the journal, messages.

package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestEndpointDiscovery: addresses stay, names give all their addresses, what
// does not resolve stays for the dial to name it, nothing is tried twice (§119).
func TestEndpointDiscovery(t *testing.T) {
	resolve := func(_ context.Context, host string) ([]string, error) {
		switch host {
		case "fleet.example":
			return []string{"10.0.0.1", "10.0.0.2", "fd00::1"}, nil
		case "lb.example":
			return []string{"10.0.0.2"}, nil
		}
		return nil, errors.New("no such host")
	}
	require.Equal(t,
		[]string{"127.0.0.1:7444", "10.0.0.1:7444", "10.0.0.2:7444", "[fd00::1]:7444", "10.0.0.2:9", "gone.example:7444"},
		expand(t.Context(), []string{"127.0.0.1:7444", "fleet.example:7444", "lb.example:7444", "lb.example:9", "gone.example:7444", "127.0.0.1:7444"}, resolve))
}

// TestTail: whatever is written in whatever pieces, the last bytes are kept and all are counted, in bounded memory.
func TestTail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 8
		tl, all := newTail(limit), ""
		for _, piece := range rapid.SliceOf(rapid.StringN(0, 30, 30)).Draw(t, "pieces") {
			n, err := tl.Write([]byte(piece))
			require.NoError(t, err)
			require.Equal(t, len(piece), n)
			all += piece
			require.LessOrEqual(t, len(tl.buf), 2*limit)
		}
		require.Equal(t, all[max(0, len(all)-limit):], string(tl.Bytes()))
		require.EqualValues(t, len(all), tl.Total())
	})
}

// TestJournalSurvivesACut: a line that a crash cut short is dropped, every whole one counts, and the next line is whole.
func TestJournalSurvivesACut(t *testing.T) {
	dir := t.TempDir()
	j, err := openJournal(dir, 0)
	require.NoError(t, err)
	require.NoError(t, j.write(Entry{What: EntryStart, Lease: "l1"}, true))
	require.NoError(t, j.write(Entry{What: EntryStart, Lease: "l2"}, true))
	require.NoError(t, j.write(Entry{What: EntryClose, Lease: "l2"}, true))
	require.NoError(t, j.close())
	path := filepath.Join(dir, StartsFile)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(whole, `{"what":"start","lease":"l3`...), 0o600))

	j, err = openJournal(dir, 0)
	require.NoError(t, err)
	require.True(t, j.hasStarted("l1") && j.hasStarted("l2"))
	require.False(t, j.hasStarted("l3"))
	require.Len(t, j.open, 1)
	require.NoError(t, j.write(Entry{What: EntryStart, Lease: "l4"}, true))
	require.NoError(t, j.close())
	j, err = openJournal(dir, 0)
	require.NoError(t, err)
	require.True(t, j.hasStarted("l4"))
	require.NoError(t, j.close())

	require.NoError(t, os.WriteFile(path, []byte("garbage\n"), 0o600))
	_, err = openJournal(dir, 0)
	require.ErrorContains(t, err, "at byte 0", "a damaged journal is no empty one")
}

// TestJournalBreaksOnce: after a failed write nothing more is written, for the line could be half there.
func TestJournalBreaksOnce(t *testing.T) {
	j, err := openJournal(t.TempDir(), 0)
	require.NoError(t, err)
	require.NoError(t, j.starts.Close())
	require.Error(t, j.write(Entry{What: EntryStart, Lease: "l1"}, true))
	require.False(t, j.hasStarted("l1"))
	require.Error(t, j.failed())
	require.NoError(t, j.lock.Close())
}

// TestMalformedMessages: what no correct agent sends is refused before the database sees it.
func TestMalformedMessages(t *testing.T) {
	const lease = "00000000-0000-0000-0000-00000000000a"
	for name, m := range map[string]Message{
		"lease id":     {Answer: &Answer{Lease: "'; DROP TABLE", Verdict: Accepted}},
		"beat":         {Beat: &Beat{Leases: []Progress{{Lease: "x"}}}},
		"many":         {Beat: &Beat{Leases: make([]Progress, 2*MaxSlots+1)}},
		"outcome":      {Complete: &Complete{Lease: lease, Outcome: "splendid"}},
		"tail":         {Complete: &Complete{Lease: lease, Outcome: Failed, Tail: make([]byte, MaxTail+1)}},
		"negative":     {Complete: &Complete{Lease: lease, Outcome: Failed, Duration: -1}},
		"upper case":   {Release: &Release{Lease: strings.ToUpper(lease)}},
		"empty answer": {Release: &Release{}},
	} {
		var pe *protocolError
		require.ErrorAs(t, malformed(m), &pe, name)
	}
	m := Message{Release: &Release{Lease: lease}}
	require.NoError(t, malformed(m))
	require.Equal(t, []string{lease}, leasesOf(m))

	_, err := DecodeMessage(make([]byte, MaxMessage+1))
	require.Error(t, err)
	_, err = DecodeMessage([]byte{0xff, 0x00})
	require.Error(t, err)
}

// Hellos of one agent wait for each other; those of others do not.
func TestDoorsAreOnePerAgent(t *testing.T) {
	var d doors
	leave, err := d.enter(t.Context(), "a")
	require.NoError(t, err)
	other, err := d.enter(t.Context(), "b")
	require.NoError(t, err)
	other()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = d.enter(gone, "a")
	require.ErrorIs(t, err, context.Canceled)
	in := make(chan func())
	go func() {
		leave, _ := d.enter(t.Context(), "a")
		in <- leave
	}()
	require.Eventually(t, func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.byAgent["a"].at == 2 }, 10*time.Second, time.Millisecond)
	require.Empty(t, in)
	leave()
	(<-in)()
	require.Empty(t, d.byAgent, "nothing is remembered")
}
