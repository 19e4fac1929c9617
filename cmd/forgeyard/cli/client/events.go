// Server-sent events: read from daemon to daemon without a gap and without a repetition.

package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	eventQuiet = 40 * time.Second // daemons say every 15 s that they are there
	maxEvent   = 1 << 20          // bytes of one line
)

// Event is one server-sent event with data.
type Event struct {
	ID   string // cursor: where to go on after this event
	Kind string
	Data []byte
}

// Events are followed from a cursor.
type Events struct {
	Path     string
	After    string // cursor; "" leaves the beginning to the daemon. It moves on with what was read
	Patience time.Duration
	Opened   func()            // called when a daemon begins to answer; may be nil
	Each     func(Event) error // an error of it ends the stream
}

// Events reads events until ctx ends, the daemons refuse for good, or Each fails.
func (c *Client) Events(ctx context.Context, s *Events) error {
	return c.Follow(ctx, Stream{Quiet: eventQuiet, Patience: s.Patience, Request: s.request, Read: s.read})
}

func (s *Events) request() (string, url.Values, http.Header) {
	h := http.Header{"Accept": {"text/event-stream"}}
	if s.After != "" {
		h.Set("Last-Event-Id", s.After)
	}
	return s.Path, nil, h
}

// read takes events apart as the HTML standard says. An event that was cut in
// the middle is not dispatched, and its id not taken.
func (s *Events) read(_ *http.Response, r io.Reader) error {
	if s.Opened != nil {
		s.Opened()
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4096), maxEvent)
	var e Event
	id := s.After
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			s.After = id
			if e.Data != nil {
				e.ID = id
				if err := s.Each(e); err != nil {
					return err
				}
			}
			e = Event{}
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			id = value
		case "event":
			e.Kind = value
		case "data":
			if e.Data != nil {
				e.Data = append(e.Data, '\n')
			}
			e.Data = append(e.Data, value...)
			if e.Data == nil {
				e.Data = []byte{}
			}
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return err
	} else if err != nil {
		return &brokenError{err}
	}
	return Broken("the daemon ended the stream") // it never ends by itself
}
