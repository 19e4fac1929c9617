// Text that PostgreSQL would refuse, and text that is too long.

package store

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestText(t *testing.T) {
	for _, c := range []struct {
		in    string
		limit int
		want  string
	}{
		{"", 4, ""},
		{"abcd", 4, "abcd"},
		{"abcde", 4, "abcd"},
		{"abc", 0, ""},
		{"a\x00b", 5, "a\uFFFDb"},
		{"a\xff\xfeb", 5, "a\uFFFDb"},
		{"a\x00b", 4, "a\uFFFD"},
		{"a\x00b", 3, "a"},
		{"äöü", 4, "äö"},
		{"aäöü", 4, "aä"},
		{"äöü", 1, ""},
	} {
		require.Equal(t, c.want, Text(c.in, c.limit), "%q within %d bytes", c.in, c.limit)
	}
}
