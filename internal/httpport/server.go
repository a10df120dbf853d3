// Package httpport implements the common part of the HTTP ports of the process: the admin port, the
// metrics port and the API of Dubbo services. None of them serves proxied traffic.
//
//	Server  limits, listeners, shutdown          server.go
//	Guard   rejects requests of web pages        guard.go
package httpport

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// Limits of a port. They bound the resources that a slow or abusive client can use.
const (
	headTimeout     = 5 * time.Second
	idleTimeout     = 60 * time.Second
	maxHeaderBytes  = 16 << 10
	shutdownTimeout = 3 * time.Second
)

// ReadTimeout limits how long a client may take to send a request.
const ReadTimeout = 10 * time.Second

// Server serves one handler on its listeners.
type Server struct {
	http      *http.Server
	listeners []net.Listener
}

// NewServer returns a server without listeners. writeTimeout limits the time from the head of a
// request to the end of its response. log receives the messages of net/http at level debug.
func NewServer(h http.Handler, writeTimeout time.Duration, log *slog.Logger) *Server {
	return &Server{http: &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headTimeout,
		ReadTimeout:       ReadTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
}

// Add adds a listener, which the server owns from now on. The caller must not call it after Run.
func (s *Server) Add(ln net.Listener) { s.listeners = append(s.listeners, ln) }

// Addrs returns the addresses of the listeners in the order of Add.
func (s *Server) Addrs() []net.Addr {
	var addrs []net.Addr
	for _, ln := range s.listeners {
		addrs = append(addrs, ln.Addr())
	}
	return addrs
}

// Run serves requests until ctx ends, and then gives the requests in flight at most three seconds.
// It returns nil unless a listener failed. The caller must call it only once.
func (s *Server) Run(ctx context.Context) error {
	ended := make(chan error, len(s.listeners))
	for _, ln := range s.listeners {
		go func() { ended <- s.http.Serve(ln) }()
	}
	var serveErr error
	running := len(s.listeners)
	select {
	case serveErr = <-ended:
		running--
	case <-ctx.Done():
	}
	shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(shutdownCtx); err != nil {
		_ = s.http.Close() // ends requests that are still in flight, such as a profile
	}
	for range running {
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			serveErr = errors.Join(serveErr, err)
		}
	}
	return serveErr
}

// Close closes a server that will not run. After Run it has no effect.
func (s *Server) Close() error {
	var errs error
	for _, ln := range s.listeners {
		if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
			errs = errors.Join(errs, err)
		}
	}
	return errs
}

// IsLoopback reports whether only this machine can reach an address.
func IsLoopback(a net.Addr) bool {
	address, err := netip.ParseAddrPort(a.String())
	return err != nil || address.Addr().Unmap().IsLoopback() // an error means a unix socket
}
