// Package client calls the API of any daemon of the fleet: it tries one
// endpoint after the other, so one dead node neither stops nor slows a command.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// Bounds of a call.
const (
	DialTimeout = 500 * time.Millisecond // of one endpoint
	ReadTimeout = 3 * time.Second        // for one endpoint's answer to a read, so that a hung one is passed over
	TryTimeout  = 5 * time.Second        // for one endpoint's answer to a change that may be repeated at another one
	maxAnswer   = 16 << 20               // bytes
)

// DefaultEndpoint is where a daemon with default settings listens.
const DefaultEndpoint = "http://127.0.0.1:7480"

// The codes of failed calls.
const (
	CodeUnreachable = "FY-CLI-002" // no endpoint answered
	CodeLost        = "FY-CLI-003" // the request was sent, its answer was not received
	CodeAnswer      = "FY-CLI-004" // the answer cannot be understood
)

// Error is a call that was refused or that failed. Status is 0 when no daemon answered.
type Error struct {
	Status  int
	Problem access.Problem
	Err     error // local cause
}

func (e *Error) Error() string { return e.Problem.Code + ": " + e.Problem.Message }

// Unwrap gives the local cause.
func (e *Error) Unwrap() error { return e.Err }

// Client is safe for concurrent use.
type Client struct {
	endpoints []*endpoint
	good      atomic.Int32 // index of the endpoint that answered last: the next call begins there
}

// from are the endpoints in the order in which a call tries them.
func (c *Client) from() []*endpoint {
	good := int(c.good.Load())
	return slices.Concat(c.endpoints[good:], c.endpoints[:good])
}

// answered notes an endpoint that did.
func (c *Client) answered(e *endpoint) { c.good.Store(int32(slices.Index(c.endpoints, e))) }

type endpoint struct {
	name string
	base string
	http *http.Client
}

// New makes a client without credentials, see NewSecured.
func New(endpoints []string) (*Client, error) { return NewSecured(endpoints, Security{}) }

// NewSecured makes a client for endpoints such as "http://127.0.0.1:7480",
// "https://10.0.0.11:7480", "127.0.0.1:7480" (https when an authority is given)
// or "unix:///run/forgeyard/admin.sock", tried in this order.
func NewSecured(endpoints []string, s Security) (*Client, error) {
	c := &Client{}
	for _, name := range endpoints {
		e, err := parse(name, s)
		if err != nil {
			return nil, err
		}
		c.endpoints = append(c.endpoints, e)
	}
	if len(c.endpoints) == 0 {
		return nil, errors.New("no endpoint is given")
	}
	return c, nil
}

func parse(name string, s Security) (*endpoint, error) {
	full := name
	switch {
	case strings.Contains(full, "://"):
	case s.Authorities != nil:
		full = "https://" + full
	default:
		full = "http://" + full
	}
	u, err := url.Parse(full)
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: %w", name, err)
	}
	dialer := &net.Dialer{Timeout: DialTimeout}
	tr := &http.Transport{
		DialContext: dialer.DialContext, MaxIdleConns: 2, IdleConnTimeout: 30 * time.Second,
		ExpectContinueTimeout: time.Second, // for uploads: a refusal comes before the bytes
	}
	secured, err := s.protect(name, u.Scheme, u.Hostname(), tr)
	if err != nil {
		return nil, err
	}
	e := &endpoint{name: name, http: &http.Client{
		Transport: secured,
		// No daemon redirects; following one could leak a request to somebody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	switch {
	case u.Scheme == "unix" && u.Path != "":
		path := u.Path
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
		e.base = "http://localhost"
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		if u.Port() == "" {
			u.Host = net.JoinHostPort(u.Hostname(), "7480")
		}
		e.base = strings.TrimSuffix(u.String(), "/")
	default:
		return nil, fmt.Errorf("endpoint %q: write http://host:port, https://host:port or unix:///path", name)
	}
	return e, nil
}

// Close drops idle connections.
func (c *Client) Close() {
	for _, e := range c.endpoints {
		e.http.CloseIdleConnections()
	}
}

// Get reads path into out. It goes on to the next endpoint when one is down,
// hangs, or says that it cannot serve now.
func (c *Client) Get(ctx context.Context, path string, query url.Values, out any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.each(ctx, true, func(e *endpoint) error {
		ctx, cancel := context.WithTimeout(ctx, ReadTimeout)
		defer cancel()
		return e.call(ctx, request{method: http.MethodGet, path: path}, out)
	})
}

// Post sends in and reads the answer into out. Without an idempotency key it
// goes on to the next endpoint only when the request certainly did nothing; else
// the error has Problem.OutcomeUnknown. With a key a repetition is harmless, so
// it goes on then too.
func (c *Client) Post(ctx context.Context, path, key string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	tried := 0
	return c.each(ctx, key != "", func(e *endpoint) error {
		ctx := ctx
		if tried++; key != "" && tried < len(c.endpoints) {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, TryTimeout)
			defer cancel()
		}
		return e.call(ctx, request{method: http.MethodPost, path: path, key: key, body: body}, out)
	})
}

// IdempotencyHeader carries the key under which a repeated request is recognised.
const IdempotencyHeader = "Idempotency-Key"

type request struct {
	method, path, key string
	body              []byte
	header            http.Header
	stream            io.Reader // in place of body: size bytes, closed after the call
	size              int64
}

// each calls the endpoints, beginning with the one that answered last, until one's answer counts. The first one
// that answered at all explains a failure better than the last that did not.
// repeatable says that asking twice does no harm.
func (c *Client) each(ctx context.Context, repeatable bool, call func(*endpoint) error) error {
	var answered, lost *Error
	var unreached []string
	var last error
	for _, e := range c.from() {
		err := call(e)
		var failed *Error
		if !errors.As(err, &failed) || !passOn(failed, repeatable) {
			c.answered(e)
			return err
		}
		last = err
		if failed.Status != 0 && answered == nil {
			answered = failed
		}
		if failed.Problem.OutcomeUnknown {
			lost = failed
		}
		unreached = append(unreached, e.name+": "+failed.Problem.Message)
		if ctx.Err() != nil {
			break
		}
	}
	if lost != nil {
		return lost
	}
	if answered != nil {
		return answered
	}
	return &Error{Err: last, Problem: access.Problem{
		Code: CodeUnreachable, Kind: "TransportFailure", Retryable: true,
		Message: "no daemon answered: " + strings.Join(unreached, "; "),
		Hint:    "is a daemon running? name one with --endpoint or FORGEYARD_ENDPOINTS; on its machine, unix:///path of its admin socket works too",
	}}
}

// passOn says whether another endpoint may do better: this one did nothing, and
// the reason is its own.
func passOn(e *Error, repeatable bool) bool {
	if e.Problem.OutcomeUnknown && !repeatable {
		return false
	}
	return e.Status == 0 || slices.Contains([]int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, e.Status)
}

func (e *endpoint) call(ctx context.Context, r request, out any) error {
	var body io.Reader = bytes.NewReader(r.body)
	if r.stream != nil {
		body = r.stream
	}
	req, err := http.NewRequestWithContext(ctx, r.method, e.base+r.path, body)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if r.stream != nil {
		req.ContentLength = r.size
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set(IdempotencyHeader, r.key)
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return e.failed(ctx, r.method, err)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return e.failed(ctx, r.method, err)
	}
	if resp.StatusCode >= 300 {
		return refused(resp, answer)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return &Error{Status: resp.StatusCode, Err: err, Problem: access.Problem{
			Code: CodeAnswer, Kind: "Internal", Message: "the answer of " + e.name + " cannot be understood: " + err.Error(),
			Hint: "is this a Forgeyard daemon of the same version? compare: forgeyard version",
		}}
	}
	return nil
}

// failed classifies a transport error. A change whose connection was never made
// did nothing; any later failure leaves it unknown.
func (e *endpoint) failed(ctx context.Context, method string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) && !errors.Is(context.Cause(ctx), errSilent) {
		return context.Canceled
	}
	var op *net.OpError
	notSent := errors.As(err, &op) && op.Op == "dial" || handshake(err) != ""
	if method != http.MethodGet && !notSent {
		return &Error{Err: err, Problem: access.Problem{
			Code: CodeLost, Kind: "TransportFailure", OutcomeUnknown: true,
			Message: "the request was sent to " + e.name + " but its answer was not received",
			Hint:    "it may have been done: read the current state before trying again",
		}}
	}
	return &Error{Err: err, Problem: access.Problem{
		Code: CodeUnreachable, Kind: "TransportFailure", Retryable: true, Message: reason(err),
	}}
}

// reason is the innermost cause of a transport error; the outer layers repeat the address.
func reason(err error) string {
	if text := handshake(err); text != "" {
		return text
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "no answer in time"
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

func refused(resp *http.Response, answer []byte) error {
	var doc access.Document
	if err := json.Unmarshal(answer, &doc); err != nil || doc.Error.Code == "" {
		doc.Error = access.Problem{
			Code: CodeAnswer, Kind: "Internal",
			Message: fmt.Sprintf("the endpoint answered %s without saying why", resp.Status),
			Hint:    "is this a Forgeyard daemon? check --endpoint, and whether it wants https://",
		}
	}
	return &Error{Status: resp.StatusCode, Problem: doc.Error}
}
