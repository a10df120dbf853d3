// Package api owns the local HTTP port where applications say which Dubbo services
// they provide and call.
//
//	Server    addresses, timeouts, shutdown            api.go, listen.go
//	guard     who may ask                              guard.go
//	calls     publish, subscribe and their opposites   calls.go
//	request   what a call says                         request.go
//	services  what became of it                        services.go
//
// It knows nothing of registries: what is asked for goes to the functions in Options.
// Clients of other sidecars speak to it unchanged; see docs/dubbo.md.
package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/weft-proxy/weft/pkg/upstream/discovery/dubbo"
)

// Limits of the port. Nobody who is slow or greedy there costs the proxy much.
const (
	headTimeout     = 5 * time.Second
	readTimeout     = 10 * time.Second
	callTimeout     = 20 * time.Second // of a registry that is slow
	writeTimeout    = readTimeout + callTimeout + 10*time.Second
	idleTimeout     = 60 * time.Second
	shutdownTimeout = 3 * time.Second
	maxHeaderBytes  = 16 << 10
	maxBodyBytes    = 256 << 10
	maxConnections  = 512 // more of them wait in the kernel
)

// Operation does one thing with one service. It is called from several goroutines at once;
// ctx ends when the caller is gone or has waited long enough.
type Operation func(ctx context.Context, r dubbo.Request) error

// Options say where the port is, who may ask, and who answers. Immutable.
type Options struct {
	Address string // ip:port; "": none
	Socket  string // path of a unix socket beside it, or in its place; "": none
	Token   string // that callers show as "Authorization: Bearer …"; "": none is asked for
	// StrictStatus gives a call that fails a status of 4xx or 5xx. Existing clients
	// expect 200 whatever happened, and read the body.
	StrictStatus bool

	Publish, Unpublish, Subscribe, Unsubscribe Operation
	// Services returns what is published and subscribed. It is called from several
	// goroutines at once; what it returns is only read.
	Services func() dubbo.Status
	// Count is told of each call: its path, and what became of it. nil: nobody is.
	Count func(path string, o Result)
	Log   *slog.Logger // nil: no log
}

// Result is what became of a call.
type Result uint8

// The outcomes.
const (
	OK       Result = iota
	Rejected        // the call is wrong, or its caller may not make it
	Failed          // a registry is away, or refused
)

// Server is the port. Made by Listen.
type Server struct {
	http      *http.Server
	listeners []net.Listener // one or two
}

// Listen binds the port. Requests queue in the kernel until Run. An error names the
// address.
func Listen(ctx context.Context, o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Count == nil {
		o.Count = func(string, Result) {}
	}
	s := &Server{http: &http.Server{
		Handler:           o.handler(),
		ReadHeaderTimeout: headTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}}
	if err := s.listen(ctx, o.Address, o.Socket); err != nil {
		return nil, fmt.Errorf("dubbo_registry: the API's port: %w", errors.Join(err, s.Close()))
	}
	for _, ln := range s.listeners {
		if !isLoopback(ln.Addr()) && o.Token == "" {
			o.Log.Warn("the API of Dubbo services can be reached from other machines and asks for no token", "address", ln.Addr().String())
		}
	}
	return s, nil
}

// handler is everything that is answered.
func (o *Options) handler() http.Handler {
	r := chi.NewRouter()
	for _, c := range o.calls() {
		r.Post(c.path, c.serve)
	}
	r.Get("/services", o.services)
	r.Get("/services/*", o.service)
	r.NotFound(func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusNotFound, failure, "there are POST /pub, /unpub, /sub and /unsub, and GET /services")
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, req *http.Request) {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if r.Match(chi.NewRouteContext(), method, req.URL.Path) {
				w.Header().Add("Allow", method) // RFC 9110 15.5.6
			}
		}
		reply(w, http.StatusMethodNotAllowed, failure, req.URL.Path+" does not take "+req.Method)
	})
	return newGuard(o.Token, r)
}

// Addrs returns the bound addresses, the unix socket last.
func (s *Server) Addrs() []net.Addr {
	var all []net.Addr
	for _, ln := range s.listeners {
		all = append(all, ln.Addr())
	}
	return all
}

// Run answers until ctx ends, and then for at most three seconds what was asked
// before. It returns nil unless a socket failed, and is called once.
func (s *Server) Run(ctx context.Context) error {
	ended := make(chan error, len(s.listeners))
	for _, ln := range s.listeners {
		go func() { ended <- s.http.Serve(ln) }()
	}
	var failed error
	left := len(s.listeners)
	select {
	case failed = <-ended:
		left--
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(patience); err != nil {
		_ = s.http.Close() // who still waits for a registry
	}
	for range left {
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			failed = errors.Join(failed, err)
		}
	}
	if failed != nil {
		return fmt.Errorf("dubbo_registry: the API's port: %w", failed)
	}
	return nil
}

// Close gives up a port that is not going to be run. After Run it does nothing.
func (s *Server) Close() error {
	var all error
	for _, ln := range s.listeners {
		if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
			all = errors.Join(all, err)
		}
	}
	return all
}
