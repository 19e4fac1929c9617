// Verdict: what counts as caught.

package mutants

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/forgeyard/forgeyard/migrations/mutant"
)

// Run is one run of a test.
type Run struct {
	Failed bool
	Output string
	Took   time.Duration
}

// Trial is a test's run without a fault and with it.
type Trial struct{ Clean, Planted Run }

// acts is the line of a process that reached its fault; see mutant.Acts, which other builds do not have.
const acts = "mutant acts: "

// ErrSurvived is what a test says that did not catch its fault.
var ErrSurvived = errors.New("the mutant survived")

// verdict is nil when the test passed without the fault, and an assertion of it
// failed with the fault in action. A test that hangs or never reached the fault
// has caught nothing.
func (t Trial) verdict(m mutant.Name) error {
	switch {
	case t.Clean.Failed:
		return fmt.Errorf("the test fails without the mutant:\n%s", t.Clean.Output)
	case !strings.Contains(t.Clean.Output, "--- PASS: "):
		return errors.New("no test of this name ran")
	case strings.Contains(t.Clean.Output, acts):
		return errors.New("a fault acts though none was planted")
	case !strings.Contains(t.Planted.Output, acts+string(m)):
		return fmt.Errorf("the test does not reach the mutant:\n%s", t.Planted.Output)
	case !t.Planted.Failed:
		return ErrSurvived
	case strings.Contains(t.Planted.Output, "panic: test timed out"):
		return errors.New("the test hangs with the mutant, which is no finding")
	case t.Finding() == "":
		return fmt.Errorf("no assertion failed:\n%s", t.Planted.Output)
	}
	return nil
}

// What a failed assertion prints: where it is, what is wrong, and what the test says to that.
var (
	failure = regexp.MustCompile(`(?s)Error Trace:(.*?)\n\s+Error:\s+(.*?)\n\s+Test:[^\n]*(?:\n\s+Messages:\s+([^\n]*))?`)
	place   = regexp.MustCompile(`[^/\s]+_test\.go:\d+`)
)

// Finding is what the first failed assertion said; "" when none failed.
func (t Trial) Finding() string {
	m := failure.FindStringSubmatch(t.Planted.Output)
	if m == nil {
		return ""
	}
	wrong, _, _ := strings.Cut(strings.Join(strings.Fields(m[2]), " "), " Diff: ")
	says := []string{strings.Join(place.FindAllString(m[1], -1), " < "), m[3], wrong}
	says = slices.DeleteFunc(says, func(s string) bool { return s == "" })
	return clip(strings.Join(says, ": "), 150)
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
