// Package api implements the local HTTP API with which applications publish Dubbo services and
// subscribe to them.
//
//	Server         addresses, limits                        api.go, listen.go
//	accessControl  rejects unauthorized requests            accesscontrol.go
//	endpoint       publish, unpublish, subscribe, unsubscribe   endpoints.go
//	readRequest    the body of a call                       request.go
//	services       the state of services                    services.go
//
// The package does not know registries: it passes requests to the functions in Options. Clients
// that were written for other sidecars work unchanged; see docs/dubbo.md.
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

	"github.com/weft-proxy/weft/internal/httpport"
	"github.com/weft-proxy/weft/pkg/dubbo"
)

// Limits of the API, in addition to those of package httpport.
const (
	callTimeout    = 20 * time.Second // long enough for a slow registry
	writeTimeout   = httpport.ReadTimeout + callTimeout + 10*time.Second
	maxBodyBytes   = 256 << 10
	maxConnections = 512 // open connections per listener; the kernel queues further ones
)

// Operation performs one request for one service. It must be safe for concurrent use. ctx ends when
// the client disconnects, or after callTimeout.
type Operation func(ctx context.Context, r dubbo.Request) error

// Options configure the API. They are immutable.
type Options struct {
	Address string // ip:port; "": no TCP listener
	Socket  string // path of a Unix socket; "": none
	Token   string // that clients send as "Authorization: Bearer …"; "": not required
	// StrictStatus makes failed calls return a 4xx or 5xx status. Existing clients expect 200 for
	// every call, and read the body.
	StrictStatus bool

	Publish, Unpublish, Subscribe, Unsubscribe Operation
	// Services returns published and subscribed services. It must be safe for concurrent use; the
	// API only reads the result.
	Services func() dubbo.Status
	// Count is called for each authorized request to publish, unpublish, subscribe or unsubscribe,
	// with its path and result. It may be nil.
	Count func(path string, o Result)
	Log   *slog.Logger // nil: no log
}

// Result is the result of a call.
type Result uint8

// The results of a call.
const (
	OK       Result = iota
	Rejected        // the call is invalid or not allowed
	Failed          // any other error, for example an unavailable registry
)

// Server serves the API. Listen creates it.
type Server struct{ port *httpport.Server }

// Listen binds the addresses. The kernel queues connections until Run. An error names the address.
func Listen(ctx context.Context, o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Count == nil {
		o.Count = func(string, Result) {}
	}
	s := &Server{httpport.NewServer(o.handler(), writeTimeout, o.Log)}
	if err := s.listen(ctx, o.Address, o.Socket); err != nil {
		return nil, fmt.Errorf("dubbo_registry: listening for the HTTP API: %w", errors.Join(err, s.Close()))
	}
	for _, address := range s.Addrs() {
		if !httpport.IsLoopback(address) && o.Token == "" {
			o.Log.Warn("the Dubbo HTTP API is reachable from other machines without a token", "address", address.String())
		}
	}
	return s, nil
}

// handler returns the handler of all paths.
func (o *Options) handler() http.Handler {
	r := chi.NewRouter()
	for _, e := range o.endpoints() {
		r.Post(e.path, e.serve)
	}
	r.Get("/services", o.services)
	r.Get("/services/*", o.service)
	r.NotFound(func(w http.ResponseWriter, _ *http.Request) {
		writeResponse(w, http.StatusNotFound, failure, "unknown path: use POST /pub, /unpub, /sub or /unsub, or GET /services")
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, req *http.Request) {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if r.Match(chi.NewRouteContext(), method, req.URL.Path) {
				w.Header().Add("Allow", method) // RFC 9110 15.5.6
			}
		}
		writeResponse(w, http.StatusMethodNotAllowed, failure, req.URL.Path+" does not support the method "+req.Method)
	})
	return newAccessControl(o.Token, r)
}

// Addrs returns the bound addresses, the Unix socket last.
func (s *Server) Addrs() []net.Addr { return s.port.Addrs() }

// Run serves requests until ctx ends, and then waits at most three seconds for requests in flight.
// It returns nil unless a listener failed. It must be called only once.
func (s *Server) Run(ctx context.Context) error {
	if err := s.port.Run(ctx); err != nil {
		return fmt.Errorf("dubbo_registry: serving the HTTP API: %w", err)
	}
	return nil
}

// Close closes a Server that will not run. After Run it has no effect.
func (s *Server) Close() error { return s.port.Close() }
