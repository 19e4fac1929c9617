// Asking before something that is hard to undo. Nothing ever needs a prompt: --yes answers it.

package cli

import (
	"bufio"
	"fmt"
	"strings"
)

// confirm asks a person to agree. Without one (no terminal, --no-input) it refuses, with exit code 5.
func (a *app) confirm(yes bool, danger, question string) error {
	if yes {
		return nil
	}
	if !a.io.InTTY || !a.io.OutTTY || a.noInput {
		return &refusal{message: danger, hint: "add --yes when that is intended"}
	}
	if _, err := fmt.Fprintf(a.io.Err, "%s\n%s [y/N] ", clean(danger), question); err != nil {
		return err
	}
	answer, err := bufio.NewReader(a.io.In).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); err == nil && (answer == "y" || answer == "yes") {
		return nil
	}
	return &refusal{message: "not confirmed; nothing was changed"}
}
