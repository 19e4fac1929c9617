// What is wrong with a configuration: a stable code, the place, and what to do.

package config

import (
	"errors"
	"strings"

	"github.com/forgeyard/forgeyard/cluster/config/ron"
)

// The codes of configuration errors.
const (
	CodeUnreadable   = "FY-CONFIG-001" // the file cannot be read
	CodeSyntax       = "FY-CONFIG-002" // not RON, or a field or value of the wrong shape
	CodeInvalid      = "FY-CONFIG-003" // a value that is out of bounds or contradicts another
	CodeNotLoopback  = "FY-CONFIG-004" // the API on an address others can reach
	CodeInlineSecret = "FY-CONFIG-005" // key material instead of a reference
	CodeIdentity     = "FY-CONFIG-006" // the data directory belongs to another node or cluster
	CodeUnknownEnv   = "FY-CONFIG-007" // a FORGEYARD_ variable that sets nothing
)

// Error is one fault of a configuration. Err tells the place and what is wrong;
// when it came from a file its text ends with the line and a caret.
type Error struct {
	Code string
	Path string // dotted path of the setting, "" when none
	Hint string
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errors is every fault found at once.
type Errors []*Error

func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i, x := range e {
		texts[i] = x.Error()
	}
	return strings.Join(texts, "\n")
}

// Unwrap gives the single faults.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, x := range e {
		all[i] = x
	}
	return all
}

// refuse points at a value with another code than CodeSyntax.
func refuse(code string, v ron.Value, message string) error {
	return &Error{Code: code, Err: v.Errorf("%s", message)}
}

// syntax gives a decoder's error its code.
func syntax(err error) error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	return &Error{Code: CodeSyntax, Err: err}
}
