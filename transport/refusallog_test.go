// How often a refusal is said.

package transport

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/transport/pki"
)

func TestRefusalIsSaidOnceInAWhile(t *testing.T) {
	var l refusalLog
	now := time.Now()
	of := func(id string, c Code) refusalKey { return refusalKey{peer: pki.Subject{ID: id}, code: c} }
	say := func(k refusalKey) bool { _, ok := l.note(k, now); return ok }
	require.True(t, say(of("a", CodeNotMember)))
	for range 50 {
		require.False(t, say(of("a", CodeNotMember)))
	}
	unsaid, ok := l.note(of("a", CodeRemoved), now)
	require.True(t, ok, "another reason")
	require.Equal(t, 50, unsaid)
	unsaid, ok = l.note(of("b", CodeNotMember), now)
	require.True(t, ok, "another peer")
	require.Zero(t, unsaid, "told with the refusal before")
	now = now.Add(sayAgain)
	unsaid, ok = l.note(of("c", CodeNotMember), now)
	require.True(t, ok)
	require.Zero(t, unsaid, "told with the refusal before")
	require.True(t, say(of("a", CodeNotMember)), "again, after a while")

	// Names that anybody can invent are bounded too, and forgotten.
	said := 0
	for i := range 4 * maxSaid {
		if say(of(strconv.Itoa(i), CodeNoCertificate)) {
			said++
		}
	}
	require.Less(t, said, maxSaid)
	require.LessOrEqual(t, len(l.said), maxSaid)
	now = now.Add(sayAgain)
	unsaid, ok = l.note(of("late", CodeNoCertificate), now)
	require.True(t, ok)
	require.Equal(t, 4*maxSaid-said, unsaid)
}
