// Package server is the daemon's HTTP side: it mounts the routes that other
// packages export on a loopback listener and on the administration socket, and
// wraps them in everything a request must pass first.
//
// This file: construction, serving and stopping.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// Bounds of the server.
const (
	HeaderTimeout = 5 * time.Second  // to receive a request's header
	ReadTimeout   = 30 * time.Second // to receive a whole request
	WriteTimeout  = 60 * time.Second // to handle and answer it
	IdleTimeout   = 2 * time.Minute  // between requests of a connection
	MaxHeader     = 64 << 10         // bytes
	StopTimeout   = 5 * time.Second  // for running requests once stopping began
)

// ErrNotLoopback (FY-API-010): the API's address can be reached from other machines.
var ErrNotLoopback = &access.Fault{
	Status: http.StatusForbidden, Code: "FY-API-010", Message: "the API listens on loopback only",
	Hint: "submitting a run is remote code execution; use 127.0.0.1 and an SSH tunnel, or the administration socket",
}

// Config is what a server needs. Listen and Admin may be nil; at least one is given.
type Config struct {
	Listen  net.Listener // TCP on a loopback address
	Admin   net.Listener // the administration socket, see ListenAdmin
	Routes  []access.Route
	Private []access.Route // further routes, on the administration socket alone
	Ready   *Checks        // what /readyz asks; nil is always ready
	Version Version
	MaxBody int64 // bytes of a request body; 0 is access.MaxBody
	Logger  *slog.Logger
	Now     func() time.Time
}

// Server serves until Close.
type Server struct {
	cfg     Config
	handler http.Handler // of the TCP listener
	admin   http.Handler // of the administration socket
	servers []*http.Server
	wait    sync.WaitGroup
	failed  chan error
}

// New checks the configuration and builds the mux. A route that conflicts with
// another, and a TCP address that is not loopback, are errors.
func New(cfg Config) (*Server, error) {
	if cfg.Listen == nil && cfg.Admin == nil {
		return nil, errors.New("server: no listener")
	}
	if cfg.Listen != nil {
		tcp, ok := cfg.Listen.Addr().(*net.TCPAddr)
		if ok && !tcp.IP.IsLoopback() {
			return nil, ErrNotLoopback.Because("the API listens on %s, which is not a loopback address", tcp)
		}
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = access.MaxBody
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Ready == nil {
		cfg.Ready = NewChecks(cfg.Now)
	}
	s := &Server{cfg: cfg, failed: make(chan error, 2)}
	shared := append(s.own(), cfg.Routes...)
	handler, err := mount(shared)
	if err != nil {
		return nil, err
	}
	admin, err := mount(append(shared, cfg.Private...))
	if err != nil {
		return nil, err
	}
	s.handler, s.admin = handler, admin
	return s, nil
}

// Start begins to serve; Failed reports a listener that broke.
func (s *Server) Start() {
	if s.cfg.Listen != nil {
		s.serve(s.cfg.Listen, s.wrap(s.handler, true))
	}
	if s.cfg.Admin != nil {
		s.serve(s.cfg.Admin, s.wrap(s.admin, false))
	}
}

// Failed receives an error when a listener stopped on its own.
func (s *Server) Failed() <-chan error { return s.failed }

func (s *Server) serve(l net.Listener, h http.Handler) {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: HeaderTimeout, ReadTimeout: ReadTimeout, WriteTimeout: WriteTimeout,
		IdleTimeout: IdleTimeout, MaxHeaderBytes: MaxHeader,
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	s.servers = append(s.servers, srv)
	s.wait.Go(func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("serve %s: %w", l.Addr(), err)
		}
	})
}

// Close stops accepting, gives running requests until ctx ends or StopTimeout,
// cuts the rest, and returns after every serving goroutine ended.
func (s *Server) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, StopTimeout)
	defer cancel()
	errs := make([]error, len(s.servers))
	var stopping sync.WaitGroup
	for i, srv := range s.servers {
		stopping.Go(func() {
			if err := srv.Shutdown(ctx); err != nil {
				errs[i] = errors.Join(fmt.Errorf("requests were cut off: %w", err), srv.Close())
			}
		})
	}
	stopping.Wait()
	s.wait.Wait()
	s.cfg.Ready.Drain() // nobody asks from now on
	return errors.Join(append(errs, s.cfg.Ready.settle(ctx))...)
}

// mount builds the mux. net/http panics on a conflict of patterns; that is a
// defect of this build, reported as an error so that the daemon says which.
func mount(routes []access.Route) (mux *http.ServeMux, err error) {
	mux = http.NewServeMux()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("mount routes: %v", r)
		}
	}()
	methods := map[string][]string{}
	for _, r := range routes {
		mux.Handle(r.Method+" "+r.Pattern, r.Handler)
		methods[r.Pattern] = append(methods[r.Pattern], r.Method)
	}
	for pattern, allowed := range methods {
		mux.Handle(pattern, wrongMethod(allowed))
	}
	mux.Handle("/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		access.WriteError(w, access.ErrNotFound.Because("no such path: %s", r.URL.Path))
	}))
	return mux, nil
}
