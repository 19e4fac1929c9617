// Fuzzing of what reaches the terminal: names, reasons and output that others wrote.

package cli

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/corpus"
)

func FuzzClean(f *testing.F) {
	for name, s := range map[string]string{
		"plain": "build 7/8 ✓", "escape": "\x1b[2J\x1b]0;title\x07", "a line": "a\nb\r", "C1": "\u009b2J", "right to left": "abc\u202edcba", "isolate": "\u2066x\u2069", "Arabic mark": "a\u061cb",
		"line separator": "a\u2028b\u2029c", "not UTF-8": "\xff\xfe", "byte order mark": "\ufeffa", "zero width": "a\u200bb", "nothing": "",
	} {
		corpus.Add(f, name, s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := clean(s)
		require.True(t, utf8.ValidString(got))
		for _, r := range got {
			require.False(t, unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r), "%U", r)
		}
		require.Equal(t, utf8.RuneCountInString(s), utf8.RuneCountInString(got), "a column keeps its width")
		require.Equal(t, got, clean(got))
		require.Equal(t, strings.Count(s, "\t"), strings.Count(cleanKeepingTabs(s), "\t"))
	})
}
