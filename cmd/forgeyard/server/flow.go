// Bodies and answers: how much a request may send, and the deadlines of those that take longer than a request.

package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// errBusy (FY-API-013): as many uploads, or streams, as this daemon serves at a time are under way.
var errBusy = &access.Fault{
	Status: http.StatusServiceUnavailable, Code: "FY-API-013", Message: "this daemon serves too many requests of this kind already",
	Hint: "try again, or ask another daemon",
}

// limit bounds the body and demands its type before anything of it is read.
func (s *Server) limit(route access.Route, web bool, next http.Handler) http.Handler {
	most := s.cfg.MaxBody
	if route.Upload > 0 {
		most = route.Upload
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if web {
			if err := checkType(r, route.Upload > 0); err != nil {
				access.WriteError(w, err)
				return
			}
		}
		access.LimitBody(w, r, most)
		next.ServeHTTP(w, r)
	})
}

// flow gives uploads and streams their own deadlines. It stands behind the
// guard: nobody unknown can hold a connection for longer than a request.
func (s *Server) flow(route access.Route) http.Handler {
	switch {
	case route.Stream:
		return admit(s.streams, s.stream(route.Handler))
	case route.Upload > 0:
		return admit(s.uploads, upload(route.Handler))
	}
	return route.Handler
}

// admit lets as many in as there are places. Who holds one may do so for long,
// so nobody waits for another's: the client asks again, or another daemon.
func admit(places chan struct{}, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			next.ServeHTTP(w, r)
		default:
			access.WriteError(w, errBusy.Because("this daemon serves %d requests of this kind already", cap(places)))
		}
	})
}

// stream lets an answer last until its client leaves or the server stops. The
// read deadline goes, because when it passes net/http ends the request's context.
func (s *Server) stream(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		out := &streamWriter{ResponseWriter: w, control: http.NewResponseController(w), stopping: s.stopping, events: s.metrics.streams}
		defer out.leave()
		if err := errors.Join(out.control.SetReadDeadline(time.Time{}), out.extend()); err != nil {
			access.WriteError(w, err)
			return
		}
		ended := make(chan struct{})
		stop := context.AfterFunc(s.stopping, func() {
			defer close(ended)
			cancel()
			_ = out.extend() // a write that hangs on a stalled client ends with it; a connection that is gone needs none
		})
		defer func() {
			if !stop() {
				<-ended // it must not touch the answer after this handler
			}
		}()
		next.ServeHTTP(out, r.WithContext(ctx))
	})
}

// streamWriter gives each write its own deadline, and counts the client when the
// answer turns out to be events.
type streamWriter struct {
	http.ResponseWriter
	control  *http.ResponseController
	stopping context.Context
	events   prometheus.Gauge
	begun    bool
	counted  bool
}

func (w *streamWriter) begin() {
	if w.begun {
		return
	}
	w.begun = true
	if w.counted = strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream"); w.counted {
		w.events.Inc()
	}
}

func (w *streamWriter) leave() {
	if w.counted {
		w.events.Dec()
	}
}

// WriteHeader begins the answer.
func (w *streamWriter) WriteHeader(status int) {
	w.begin()
	w.ResponseWriter.WriteHeader(status)
}

func (w *streamWriter) extend() error {
	if w.stopping.Err() != nil {
		return w.control.SetWriteDeadline(time.Now().Add(StreamEnd))
	}
	return w.control.SetWriteDeadline(time.Now().Add(StreamTimeout))
}

func (w *streamWriter) Write(b []byte) (int, error) {
	w.begin()
	if err := w.extend(); err != nil {
		return 0, err
	}
	return w.ResponseWriter.Write(b)
}

// FlushError sends what was written (http.ResponseController).
func (w *streamWriter) FlushError() error {
	w.begin()
	if err := w.extend(); err != nil {
		return err
	}
	return w.control.Flush()
}

// Unwrap is for http.ResponseController.
func (w *streamWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// upload lets a body take any time as long as bytes keep coming.
func upload(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := &uploadBody{ReadCloser: r.Body, control: http.NewResponseController(w)}
		if err := body.extend(ReadTimeout); err != nil {
			access.WriteError(w, err)
			return
		}
		r.Body = body
		next.ServeHTTP(w, r)
	})
}

// uploadBody moves the deadlines along with the bytes.
type uploadBody struct {
	io.ReadCloser
	control *http.ResponseController
	had     int64 // bytes read
}

// extend gives the next read d, and the answer WriteTimeout after it and what
// storing the bytes so far takes. At the end of the body the read deadline goes:
// see stream.
func (b *uploadBody) extend(d time.Duration) error {
	read, now := time.Time{}, time.Now()
	if d > 0 {
		read = now.Add(d)
	}
	return errors.Join(b.control.SetReadDeadline(read), b.control.SetWriteDeadline(now.Add(d+WriteTimeout+access.StoreTime(b.had))))
}

func (b *uploadBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.had += int64(n)
	next := ReadTimeout
	if err != nil {
		next = 0
	}
	if late := b.extend(next); late != nil && err == nil {
		err = late
	}
	return n, err
}
