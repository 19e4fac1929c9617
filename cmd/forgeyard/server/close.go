// Stopping: streams end at once, other requests finish, and nothing waits for idle connections.

package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Close stops accepting, ends streams at once, gives other requests until ctx
// ends or StopTimeout, cuts the rest, and returns after every serving goroutine ended.
func (s *Server) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, StopTimeout)
	defer cancel()
	s.stop()
	errs := make([]error, len(s.servers))
	var stopping sync.WaitGroup
	for i, srv := range s.servers {
		stopping.Go(func() { errs[i] = s.shutdown(ctx, srv) })
	}
	stopping.Wait()
	s.wait.Wait()
	s.cfg.Ready.Drain() // nobody asks from now on
	return errors.Join(append(errs, s.cfg.Ready.settle(ctx), s.metrics.settle(ctx))...)
}

// shutdown waits for the requests and not for the connections: net/http gives an
// HTTP/2 client a whole second to close its own.
func (s *Server) shutdown(ctx context.Context, srv *http.Server) error {
	served, cancel := context.WithCancel(ctx)
	defer cancel()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() {
		select {
		case <-s.active.ended():
		case <-served.Done():
			return
		}
		select {
		case <-time.After(LastBytes):
			cancel()
		case <-served.Done():
		}
	})
	defer cancel()
	if err := srv.Shutdown(served); err != nil {
		if ctx.Err() == nil {
			return srv.Close()
		}
		return errors.Join(fmt.Errorf("requests were cut off: %w", err), srv.Close())
	}
	return nil
}

// active counts the requests that are being served.
type active struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n falls to zero; nil while nobody waits for that
}

func (a *active) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
}

func (a *active) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n--; a.n == 0 && a.none != nil {
		close(a.none)
		a.none = nil
	}
}

// ended returns a channel that is closed when no request is being served.
func (a *active) ended() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.none == nil {
		a.none = make(chan struct{})
	}
	none := a.none
	if a.n == 0 {
		close(none)
		a.none = nil
	}
	return none
}
