// Text from jobs and agents, made fit for PostgreSQL and JSON.

package runner

import (
	"strings"
	"unicode/utf8"
)

// storable returns the first limit bytes of b as UTF-8 without NUL.
func storable(b []byte, limit int) string {
	s := strings.ToValidUTF8(strings.ReplaceAll(string(b), "\x00", "\uFFFD"), "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
