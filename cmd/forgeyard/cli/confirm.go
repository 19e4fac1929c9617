// Asking before something that is hard to undo. Nothing ever needs a prompt: --yes answers it.

package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// untilInterrupted reads until ctx ends: a terminal, or a pipe that nobody writes to, may
// keep the reader for ever. What is left of it ends with the process.
func untilInterrupted[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		var got answer
		got.value, got.err = read()
		done <- got
	}()
	select {
	case got := <-done:
		return got.value, got.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// confirm asks a person to agree. Without one (no terminal, --no-input) it refuses, with exit code 5.
func (a *app) confirm(ctx context.Context, yes bool, danger, question string) error {
	if yes {
		return nil
	}
	if !a.io.InTTY || !a.io.OutTTY || a.noInput {
		return &refusal{message: danger, hint: "add --yes when that is intended"}
	}
	if _, err := fmt.Fprintf(a.io.Err, "%s\n%s [y/N] ", clean(danger), question); err != nil {
		return err
	}
	answer, err := untilInterrupted(ctx, func() (string, error) { return bufio.NewReader(a.io.In).ReadString('\n') })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); err == nil && (answer == "y" || answer == "yes") {
		return nil
	}
	return &refusal{message: "not confirmed; nothing was changed"}
}
