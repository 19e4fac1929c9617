// Small words for people: ages, counts, plurals.

package cli

import (
	"fmt"
	"strconv"
	"time"
)

// span writes milliseconds the way people read a duration: 850 ms, 3.2 s, 4m10s, 3h05m, 12d.
func span(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case ms < 0:
		return "unknown"
	case d < time.Second:
		return fmt.Sprintf("%d ms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

func ago(ms int64) string {
	if ms < 0 {
		return "unknown"
	}
	return span(ms) + " ago"
}

// amount writes a count of which -1 means unknown.
func amount(n int64) string {
	if n < 0 {
		return "unknown"
	}
	return strconv.FormatInt(n, 10)
}

func count(n int) string { return amount(int64(n)) }

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

func yesNo(b *bool) string {
	switch {
	case b == nil:
		return "unknown"
	case *b:
		return "yes"
	}
	return "no"
}

// bytesText writes a number of bytes: 512 B, 1.5 KiB, 20.0 MiB.
func bytesText(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, units := float64(n), "KMGTPE"
	for f /= 1024; f >= 1024 && len(units) > 1; f /= 1024 {
		units = units[1:]
	}
	return fmt.Sprintf("%.1f %ciB", f, units[0])
}
