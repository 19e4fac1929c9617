// How handlers answer: JSON documents, strict request bodies, and one mapping from an error to its HTTP answer (§314, §316).

package access

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/forgeyard/forgeyard/cluster"
)

// MaxBody is the largest body of a request for which LimitBody set no other bound, in bytes.
const MaxBody = 1 << 20

// Problem is what every refused or failed request answers, under the key "error".
type Problem struct {
	Code           string `json:"code"` // stable; `forgeyard explain CODE`
	Kind           string `json:"kind"` // one of the nine kinds of §314, or "Request"
	Message        string `json:"message"`
	Hint           string `json:"hint,omitempty"`
	Retryable      bool   `json:"retryable"`
	OutcomeUnknown bool   `json:"outcome_unknown"` // read the truth before trying again
	RequestID      string `json:"request_id,omitempty"`
}

// Document is the whole body of a refused or failed request.
type Document struct {
	Error Problem `json:"error"`
}

// Fault is a fault of the request itself, not of coordination: a bad body, an
// unknown name, a missing permission. Status is its HTTP status (4xx).
type Fault struct {
	Status  int
	Code    string
	Message string
	Hint    string
}

func (f *Fault) Error() string { return f.Code + ": " + f.Message }

// Is matches by code.
func (f *Fault) Is(target error) bool {
	t, ok := target.(*Fault)
	return ok && t.Code == f.Code
}

// Because returns a copy of f with a specific message.
func (f *Fault) Because(format string, args ...any) *Fault {
	c := *f
	c.Message = fmt.Sprintf(format, args...)
	return &c
}

// Hinted returns a copy of f that says what to do now.
func (f *Fault) Hinted(format string, args ...any) *Fault {
	c := *f
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// The faults of a request. What a run and an agent are is nothing to this package;
// every package that answers for them says the same when there is none.
var (
	ErrBadRequest = &Fault{Status: http.StatusBadRequest, Code: "FY-API-001", Message: "the request is malformed"}
	ErrNotFound   = &Fault{Status: http.StatusNotFound, Code: "FY-API-002", Message: "no such thing", Hint: "list what exists; names, ids and unique prefixes are accepted"}
	ErrNoRun      = ErrNotFound.Hinted("list them with: forgeyard run list")
	ErrNoAgent    = ErrNotFound.Hinted("list them with: forgeyard agents list")
	ErrTooLarge   = &Fault{Status: http.StatusRequestEntityTooLarge, Code: "FY-API-003", Message: "the body is too large"}
)

// RequestIDHeader carries the id under which the server logs a request.
const RequestIDHeader = "X-Request-Id"

// WriteJSON answers with a JSON document. v must be encodable: a type that is
// not is a defect, and answers 500.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		WriteError(w, fmt.Errorf("encode the answer: %w", err))
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client is gone: nobody is left to tell
}

// WriteError answers with the status and the document that belong to err. Only
// the fields of a typed error leave this process; causes and other errors stay.
func WriteError(w http.ResponseWriter, err error) {
	status, p := Explain(err)
	p.RequestID = w.Header().Get(RequestIDHeader)
	if s := retryAfter(status, p); s > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(s))
	}
	WriteJSON(w, status, Document{Error: p})
}

// Explain maps an error to its HTTP status and problem. No answer is a redirect
// and none names the leader's address (§105).
func Explain(err error) (int, Problem) {
	var e *cluster.Error
	var f *Fault
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &e):
		return statusOf(e), Problem{
			Code: e.Code, Kind: e.Kind.String(), Message: e.Message, Hint: e.Hint,
			Retryable: e.Kind.Retryable(), OutcomeUnknown: e.OutcomeUnknown,
		}
	case errors.As(err, &f):
		return f.Status, Problem{Code: f.Code, Kind: "Request", Message: f.Message, Hint: f.Hint}
	case errors.As(err, &long):
		return Explain(tooLarge(long))
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout, Problem{
			Code: "FY-API-005", Kind: cluster.TransportFailure.String(), Message: "the request did not finish in time",
			Hint: "read the current state before trying again", OutcomeUnknown: true,
		}
	}
	return http.StatusInternalServerError, Problem{
		Code: "FY-API-006", Kind: cluster.Internal.String(), Message: "internal error",
		Hint: "the daemon's log has the cause under this request's id", OutcomeUnknown: true,
	}
}

func statusOf(e *cluster.Error) int {
	switch e.Kind {
	case cluster.NotLeader, cluster.NoQuorum, cluster.StorageFailure:
		return http.StatusServiceUnavailable
	case cluster.Fenced, cluster.MembershipConflict:
		return http.StatusConflict
	case cluster.JoinRejected:
		return http.StatusForbidden
	case cluster.IncompatibleVersion:
		return http.StatusUnprocessableEntity
	case cluster.TransportFailure:
		if e.OutcomeUnknown {
			return http.StatusBadGateway
		}
		return http.StatusServiceUnavailable // PostgreSQL or the leader was not reached: nothing happened
	}
	return http.StatusInternalServerError
}

// retryAfter is in seconds; 0 for none. An election takes about a second, a lost quorum longer.
func retryAfter(status int, p Problem) int {
	switch {
	case status != http.StatusServiceUnavailable:
		return 0
	case p.Kind == cluster.NoQuorum.String():
		return 5
	}
	return 1
}

// boundedBody is a body that LimitBody has bounded.
type boundedBody struct{ io.ReadCloser }

// LimitBody bounds a request's body to so many bytes, for every reader of it.
func LimitBody(w http.ResponseWriter, r *http.Request, most int64) {
	r.Body = boundedBody{http.MaxBytesReader(w, r.Body, most)}
}

func tooLarge(long *http.MaxBytesError) *Fault {
	return ErrTooLarge.Because("the body is larger than %d bytes", long.Limit)
}

// ReadJSON reads one JSON document into v: no unknown field, nothing after it,
// within the bound of LimitBody, or MaxBody, and all of it Unicode: a decoder
// would put U+FFFD for what is not, and so run another command than was sent.
// Its errors are *Fault.
func ReadJSON(w http.ResponseWriter, r *http.Request, v any) error {
	if _, bounded := r.Body.(boundedBody); !bounded {
		LimitBody(w, r, MaxBody)
	}
	body, err := io.ReadAll(r.Body)
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return tooLarge(long)
	case err != nil:
		return ErrBadRequest.Because("the body cannot be read: %v", err)
	case !utf8.Valid(body):
		return ErrBadRequest.Because("the body is not UTF-8")
	case loneSurrogate(body):
		return ErrBadRequest.Because("the body has half of a surrogate pair")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return ErrBadRequest.Because("the body is not the expected JSON document: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return ErrBadRequest.Because("the body holds more than one JSON document")
	}
	return nil
}

// loneSurrogate reports whether a JSON text escapes one half of a surrogate pair without the other.
func loneSurrogate(text []byte) bool {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 || i+1 == len(text) {
			return false
		}
		text = text[i:]
		first := escaped(text)
		switch {
		case first < 0:
			text = text[2:]
		case !utf16.IsSurrogate(first):
			text = text[6:]
		case utf16.DecodeRune(first, escaped(text[6:])) == utf8.RuneError:
			return true
		default:
			text = text[12:]
		}
	}
}

// escaped returns what the \uXXXX at the beginning of a text stands for, -1 when none is there.
func escaped(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}
