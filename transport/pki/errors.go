// Errors: why a certificate was refused, each with a stable code and the next step.

package pki

import "fmt"

// Error says why a certificate or key was refused.
type Error struct {
	Code    string // FY-CERT-NNN; see `forgeyard explain`
	Message string
	Hint    string
	Err     error // local cause
}

func (e *Error) Error() string {
	s := e.Code + ": " + e.Message
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the local cause.
func (e *Error) Unwrap() error { return e.Err }

// Is matches by code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

func (e *Error) with(err error, format string, args ...any) *Error {
	c := *e
	c.Message, c.Err = fmt.Sprintf(format, args...), err
	return &c
}

// The reasons for which a certificate is refused. FY-CERT-003 is the warning
// that a certificate runs out soon; it refuses nothing.
var (
	ErrMissing   = &Error{Code: "FY-CERT-001", Message: "the peer showed no certificate", Hint: "every peer needs a certificate of this cluster: forgeyard pki issue"}
	ErrAuthority = &Error{Code: "FY-CERT-002", Message: "the certificate is not signed by an authority of this cluster", Hint: "issue it with this cluster's ca.key, or add the new ca.crt to both sides before rotating"}
	ErrExpired   = &Error{Code: "FY-CERT-004", Message: "the certificate is not valid at this time", Hint: "check the clocks of both machines, then issue a new certificate: forgeyard pki issue"}
	ErrCluster   = &Error{Code: "FY-CERT-005", Message: "the certificate belongs to another cluster", Hint: "check the address: it leads to a machine of another cluster"}
	ErrKind      = &Error{Code: "FY-CERT-006", Message: "the certificate is of a kind this port does not serve", Hint: "nodes use the cluster port, agents the agents' port, each with its own kind of certificate"}
	ErrID        = &Error{Code: "FY-CERT-007", Message: "the peer claims an id that its certificate does not carry", Hint: "two nodes may not share an identity directory; issue one certificate for each"}
	ErrSAN       = &Error{Code: "FY-CERT-008", Message: "the certificate does not name exactly one holder", Hint: "issue it with forgeyard pki issue"}
	ErrPurpose   = &Error{Code: "FY-CERT-009", Message: "the certificate was not issued for this purpose", Hint: "issue it with forgeyard pki issue and the right kind"}
	ErrFiles     = &Error{Code: "FY-CERT-010", Message: "the certificate files cannot be used", Hint: "check the paths, and that certificate and key belong together"}
)
