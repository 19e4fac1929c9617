// Fuzzing of what a notification carries: whoever may write to the database can send any text.

package events

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/corpus"
)

// Whatever the text is, it wakes no topic twice and none that it does not name, and
// counts as heard only when this process sent it.
func FuzzNotification(f *testing.F) {
	const self = "01M8M7W1DW74Q8ZFNF70DAVE21"
	for name, s := range map[string]string{
		"of another": payload("01M8M7W1DW74Q8ZFNF70DAVE22", []string{Orders, Work}), "own": payload(self, []string{probe}), "all": payload("b", Topics()), "a probe of another": payload("b", []string{probe}),
		"no topic": payload("b", nil), "no sender": payload("", []string{Orders}), "nothing": "", "a name alone": self, "spaces": "  " + Orders, "commas": "b ,,,", "one topic again and again": "b " + strings.Repeat(Logs+",", 100),
		"NUL": "b orders\x00", "not UTF-8": "b \xff," + Orders, "another case": "b ORDERS",
	} {
		corpus.Add(f, name, s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b := NewBus()
		woken := map[string]int{}
		for _, topic := range Topics() {
			b.Subscribe(topic, func() { woken[topic]++ })
		}
		n := NewNotifier(b, nil, self, nil)
		n.receive(s)
		own := strings.HasPrefix(s, self+" ")
		require.Equal(t, own, n.heard.Load() > 0)
		if own {
			require.Empty(t, woken, "this process woke its own before it sent")
		}
		for topic, times := range woken {
			require.Equal(t, 1, times, topic)
			require.True(t, topic == Happens || strings.Contains(s, topic), "%q was woken", topic)
		}
		require.Empty(t, b.take(), "what was heard is not sent on")
		if from, topics, ok := parse(s); ok && !slices.Contains(topics, "") {
			require.Equal(t, s, payload(from, topics))
		}
	})
}
