// The terminal, or what stands in for it: streams, sizes and whether colour is welcome.

package cli

import (
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/term"
)

// IO is the outside of a command, an argument so that tests can stand in for it.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
	Environ  []string // as os.Environ gives it
	InTTY    bool     // a person may answer on In
	OutTTY   bool     // a person reads Out
	Width    int      // columns of Out; 0 is unlimited
	ErrWidth int      // columns of Err; 0 is unlimited
	// Interrupts delivers each Ctrl-C, after the first of which a command's
	// context has ended, until the returned function is called. nil delivers none.
	Interrupts func() (<-chan os.Signal, func())
}

// System is the process's own terminal. A terminal is recognised by its ioctl:
// /dev/null is a character device too, and asking there would hang for ever.
func System() IO {
	s := IO{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Environ: os.Environ(),
		InTTY: term.IsTerminal(int(os.Stdin.Fd())), OutTTY: term.IsTerminal(int(os.Stdout.Fd())),
		Interrupts: func() (<-chan os.Signal, func()) {
			ch := make(chan os.Signal, 2)
			signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
			return ch, func() { signal.Stop(ch) }
		},
	}
	s.Width, s.ErrWidth = s.columnsOf(os.Stdout), s.columnsOf(os.Stderr)
	return s
}

// columnsOf is the width of a terminal, 0 for what is none.
func (s IO) columnsOf(f *os.File) int {
	if !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	if n, err := strconv.Atoi(s.getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	w, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return w
}

// getenv returns the last value of a variable, "" when it is not set.
func (s IO) getenv(name string) string {
	v, _ := s.lookupEnv(name)
	return v
}

// lookupEnv also tells whether the variable is set.
func (s IO) lookupEnv(name string) (string, bool) {
	for _, kv := range slices.Backward(s.Environ) {
		if n, v, ok := strings.Cut(kv, "="); ok && n == name {
			return v, true
		}
	}
	return "", false
}

// wantsColour decides by flag, then NO_COLOR, then CLICOLOR_FORCE, then whether
// a capable terminal shows the output.
func (s IO) wantsColour(mode string) bool {
	force := s.getenv("CLICOLOR_FORCE")
	switch {
	case mode == "never":
		return false
	case mode == "always":
		return true
	case s.getenv("NO_COLOR") != "":
		return false
	case force != "" && force != "0":
		return true
	}
	return s.OutTTY && s.getenv("TERM") != "dumb"
}
