// Text from outside, made fit for PostgreSQL and JSON.

package store

import (
	"strings"
	"unicode/utf8"
)

// Text returns at most the first limit bytes of s as UTF-8 without NUL, whole
// runes of it; what PostgreSQL would refuse becomes U+FFFD.
func Text(s string, limit int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
