// Exit codes and error messages: what failed, why, what to do now, and a stable code.

package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/cluster/config"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// The exit codes.
const (
	ExitOK          = 0   // done
	ExitFailed      = 1   // failed, and nothing more special
	ExitUsage       = 2   // wrong arguments or configuration
	ExitDegraded    = 3   // cluster status --strict: works, with warnings
	ExitUnhealthy   = 4   // cluster status: no quorum
	ExitRefused     = 5   // a safety check refused
	ExitUnknown     = 6   // timed out or cut off; the operation may still be running
	ExitDenied      = 7   // authentication or permission
	ExitInterrupted = 130 // Ctrl-C
)

// The codes of errors that arise in the command line itself.
const (
	codeUsage   = "FY-CLI-001"
	codeRefused = "FY-CLI-005"
	codeOther   = "FY-CLI-006"
	codeRun     = "FY-CLI-007"
)

// usageError is a wrong command line.
type usageError struct {
	message string
	hint    string
}

func (e *usageError) Error() string { return e.message }

func usagef(hint, format string, args ...any) error {
	return &usageError{message: fmt.Sprintf(format, args...), hint: hint}
}

// refusal is an operation that a safety check did not let through.
type refusal struct{ message, hint string }

func (e *refusal) Error() string { return e.message }

// verdict ends a command with a code after its output was printed in full.
type verdict struct{ code int }

func (v verdict) Error() string { return fmt.Sprintf("exit code %d", v.code) }

// runFailed is a run that was waited for and did not succeed.
type runFailed struct{ message string }

func (e *runFailed) Error() string { return e.message }

// explain maps an error to its exit code and its problem.
func explain(err error) (int, access.Problem) {
	var (
		usage   *usageError
		refused *refusal
		run     *runFailed
		called  *client.Error
		faults  config.Errors
		fault   *config.Error
		cert    *pki.Error
		own     *cluster.Error
		request *access.Fault
	)
	switch {
	case errors.Is(err, context.Canceled):
		return ExitInterrupted, access.Problem{Code: codeOther, Kind: "Interrupted", Message: "interrupted"}
	case errors.As(err, &usage):
		return ExitUsage, access.Problem{Code: codeUsage, Kind: "Usage", Message: usage.message, Hint: usage.hint}
	case errors.As(err, &refused):
		return ExitRefused, access.Problem{Code: codeRefused, Kind: "Refused", Message: refused.message, Hint: refused.hint}
	case errors.As(err, &run):
		return ExitFailed, access.Problem{Code: codeRun, Kind: "RunFailed", Message: run.message}
	case errors.As(err, &called):
		return exitOf(called), called.Problem
	case errors.As(err, &faults):
		p := configProblem(faults[0])
		p.Message = faults.Error()
		return ExitUsage, p
	case errors.As(err, &fault):
		return ExitUsage, configProblem(fault)
	case errors.As(err, &cert):
		return ExitFailed, access.Problem{Code: cert.Code, Kind: "Certificate", Message: withCause(cert.Message, cert.Err), Hint: cert.Hint}
	case errors.As(err, &own):
		p := access.Problem{
			Code: own.Code, Kind: own.Kind.String(), Message: withCause(own.Message, own.Err), Hint: own.Hint,
			Retryable: own.Kind.Retryable(), OutcomeUnknown: own.OutcomeUnknown,
		}
		return exitOfProblem(p), p
	case errors.As(err, &request):
		return ExitFailed, access.Problem{Code: request.Code, Kind: "Request", Message: request.Message, Hint: request.Hint}
	}
	return ExitFailed, access.Problem{Code: codeOther, Kind: "Internal", Message: err.Error()}
}

func configProblem(e *config.Error) access.Problem {
	return access.Problem{Code: e.Code, Kind: "Configuration", Message: e.Error(), Hint: e.Hint}
}

func withCause(message string, cause error) string {
	if cause == nil {
		return message
	}
	return message + ": " + cause.Error()
}

func exitOf(e *client.Error) int {
	if e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden {
		return ExitDenied
	}
	return exitOfProblem(e.Problem)
}

func exitOfProblem(p access.Problem) int {
	switch {
	case p.OutcomeUnknown:
		return ExitUnknown
	case p.Kind == cluster.Fenced.String() || p.Kind == cluster.MembershipConflict.String():
		return ExitRefused
	case p.Kind == cluster.JoinRejected.String():
		return ExitDenied
	}
	return ExitFailed
}

// report writes an error to standard error, as JSON when that was asked for.
func (a *app) report(err error) int {
	var v verdict
	if errors.As(err, &v) {
		return v.code
	}
	code, p := explain(err)
	if a.format == formatJSON || a.format == formatYAML {
		if err := writeJSON(a.io.Err, access.Document{Error: p}, ""); err != nil {
			return ExitFailed
		}
		return code
	}
	var b strings.Builder
	lines := strings.Split(p.Message, "\n")
	prose := func(text string) { fmt.Fprintln(&b, wrap(text, a.io.ErrWidth, len(label.FindString(text)))) }
	prose("error: " + cleanKeepingTabs(lines[0]))
	for _, l := range lines[1:] {
		fmt.Fprintln(&b, cleanKeepingTabs(l))
	}
	if p.Hint != "" {
		prose("  now: " + clean(p.Hint))
	}
	if p.OutcomeUnknown {
		fmt.Fprintln(&b, "  the outcome is unknown: it may have been done")
	}
	if p.Kind != "Usage" && p.Kind != "Interrupted" {
		fmt.Fprintf(&b, "  why: forgeyard explain %s\n", clean(p.Code))
	}
	if _, err := fmt.Fprint(a.io.Err, b.String()); err != nil {
		return ExitFailed
	}
	return code
}

// cleanKeepingTabs cleans a line of a source excerpt, whose caret stands under a tab.
func cleanKeepingTabs(s string) string {
	parts := strings.Split(s, "\t")
	for i := range parts {
		parts[i] = clean(parts[i])
	}
	return strings.Join(parts, "\t")
}
