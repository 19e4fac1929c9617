// Package server is the daemon's HTTP side: it mounts the routes that other packages export on the API's listener and on
// the administration socket, and lets a request reach its handler only after everything it must pass first. DESIGN.md
// tells in which order.
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
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// Bounds of the server.
const (
	HeaderTimeout = 5 * time.Second        // to receive a request's header
	ReadTimeout   = 30 * time.Second       // to receive a whole request; of an upload, between two reads
	WriteTimeout  = 60 * time.Second       // to handle and answer it; of an upload, after its last byte and access.StoreTime
	StreamTimeout = 10 * time.Second       // for one write to a stream's client
	StreamEnd     = 500 * time.Millisecond // for a stream's last write once stopping began
	IdleTimeout   = 2 * time.Minute        // between requests of a connection
	MaxHeader     = 32 << 10               // bytes
	MaxUploads    = 16                     // at a time: the check of one may need a hundred MiB
	MaxStreams    = 2048                   // at a time, of events, logs and artifacts together
	StopTimeout   = 5 * time.Second        // for running requests once stopping began
	LastBytes     = 200 * time.Millisecond // for clients to take the last answers
)

// ErrNotLoopback (FY-API-010): the API's address can be reached from other machines, in plain text.
var ErrNotLoopback = &access.Fault{
	Status: http.StatusForbidden, Code: "FY-API-010", Message: "without TLS the API listens on loopback only",
	Hint: "submitting a run is remote code execution; set api.tls, or use 127.0.0.1 and an SSH tunnel, or the administration socket",
}

// Config is what a server needs. Listen and Admin may be nil; at least one is given.
type Config struct {
	Listen     net.Listener // TCP; on a loopback address unless Access has an identity
	Admin      net.Listener // the administration socket, see ListenAdmin
	Access     Access       // how callers on Listen prove who they are
	Routes     []access.Route
	Private    []access.Route         // further routes, on the administration socket alone
	Ready      *Checks                // what /readyz asks; nil is always ready
	Collectors []prometheus.Collector // further figures for /metrics, each given CollectTimeout
	Version    Version
	MaxBody    int64 // bytes of a request body; 0 is access.MaxBody
	Logger     *slog.Logger
	Now        func() time.Time
}

// Server serves until Close.
type Server struct {
	cfg     Config
	origin  *http.CrossOriginProtection
	metrics *Metrics
	shared  []access.Route // on both listeners
	handler http.Handler   // of the TCP listener
	admin   http.Handler   // of the administration socket
	servers []*http.Server
	wait    sync.WaitGroup
	failed  chan error
	uploads chan struct{} // a place each
	streams chan struct{} // a place each

	stopping context.Context // ends when Close begins: streams end with it
	stop     context.CancelFunc
	active   active
}

// New checks the configuration and builds the mux. A route that conflicts with
// another or that nobody is kept from, and a plain TCP address that is not
// loopback, are errors.
func New(cfg Config) (*Server, error) {
	if cfg.Listen == nil && cfg.Admin == nil {
		return nil, errors.New("server: no listener")
	}
	if cfg.Listen != nil && cfg.Access.Identity == nil {
		tcp, ok := cfg.Listen.Addr().(*net.TCPAddr)
		if ok && !tcp.IP.IsLoopback() {
			return nil, ErrNotLoopback.Because("the API listens on %s, which is not a loopback address, without TLS", tcp)
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
	metrics, err := NewMetrics(cfg.Version, cfg.Logger, cfg.Collectors...)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, origin: http.NewCrossOriginProtection(), metrics: metrics, failed: make(chan error, 2),
		uploads: make(chan struct{}, MaxUploads), streams: make(chan struct{}, MaxStreams),
	}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.shared = append(s.own(), cfg.Routes...)
	if s.handler, err = s.mount(s.shared, true); err != nil {
		return nil, err
	}
	if s.admin, err = s.mount(append(slices.Clone(s.shared), cfg.Private...), false); err != nil {
		return nil, err
	}
	return s, nil
}

// Routes lists what is mounted: on both listeners, and on the administration socket alone.
func (s *Server) Routes() (shared, private []access.Route) {
	return slices.Clone(s.shared), slices.Clone(s.cfg.Private)
}

// Start begins to serve; Failed reports a listener that broke.
func (s *Server) Start() {
	if s.cfg.Listen != nil {
		s.serve(s.cfg.Listen, s.wrap(s.handler, true), true)
	}
	if s.cfg.Admin != nil {
		s.serve(s.cfg.Admin, s.wrap(s.admin, false), false)
	}
}

// Failed receives an error when a listener stopped on its own.
func (s *Server) Failed() <-chan error { return s.failed }

func (s *Server) serve(l net.Listener, h http.Handler, web bool) {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: HeaderTimeout, ReadTimeout: ReadTimeout, WriteTimeout: WriteTimeout,
		IdleTimeout: IdleTimeout, MaxHeaderBytes: 2 * MaxHeader, // net/http's own refusal has no document; wrap's comes first
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	run := srv.Serve
	if id := s.cfg.Access.Identity; web && id != nil {
		srv.TLSConfig = id.ServerTLS()
		run = func(l net.Listener) error { return srv.ServeTLS(l, "", "") }
	}
	s.servers = append(s.servers, srv)
	s.wait.Go(func() {
		if err := run(l); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("serve %s: %w", l.Addr(), err)
		}
	})
}
