// Package admin implements the admin port: an HTTP port that serves the endpoints in Options, and
// an index of them.
//
//	Server     address, limits                              admin.go
//	guard      rejects requests of foreign web pages        guard.go
//	handler    routes requests to the endpoints             handler.go
//	index      lists the endpoints                          index.go
//	HelpText   lists the endpoints in Envoy's format        help.go
package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/weft-proxy/weft/internal/httpport"
	"github.com/weft-proxy/weft/internal/unixaddr"
	"github.com/weft-proxy/weft/internal/unixsocket"
)

// Limits of the port, in addition to those of package httpport.
const (
	writeTimeout = 90 * time.Second // long enough for a CPU profile of one minute
	maxBodyBytes = 4 << 10
)

// Options configure an admin port. Immutable.
type Options struct {
	Address string // ip:port, or the path of a unix socket
	// Mode holds the permissions of the unix socket: users with write permission can connect. 0
	// allows only the owner.
	Mode fs.FileMode
	// Hosts are the host names, or "*.suffix", that requests may have in addition to IP addresses
	// and localhost. They have no port.
	Hosts     []string
	Endpoints []Endpoint   // in the order of the index
	Log       *slog.Logger // nil discards the log
}

// Server is one HTTP port. Listen and ListenMetrics return a Server.
type Server struct{ port *httpport.Server }

// Listen binds the admin port. Connections queue in the kernel until Run.
func Listen(ctx context.Context, o Options) (*Server, error) {
	return listen(ctx, o.Address, o.Mode, NewHandler(o), o.Log)
}

// ListenMetrics binds a port that serves scrapes at path and nothing else.
func ListenMetrics(ctx context.Context, address, path string, metrics http.Handler, log *slog.Logger) (*Server, error) {
	mux := http.NewServeMux()
	mux.Handle("GET "+path, metrics)
	return listen(ctx, address, 0, mux, log)
}

func listen(ctx context.Context, address string, mode fs.FileMode, h http.Handler, log *slog.Logger) (*Server, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ln, err := bind(ctx, address, mode)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	if !httpport.IsLoopback(ln.Addr()) {
		log.Warn("the port is reachable from other machines and requires no credentials", "address", ln.Addr().String())
	}
	port := httpport.NewServer(h, writeTimeout, log)
	port.Add(ln)
	return &Server{port}, nil
}

// Addr returns the bound address.
func (s *Server) Addr() net.Addr { return s.port.Addrs()[0] }

// Run serves requests until ctx ends, and then waits at most three seconds for the requests in
// flight. It returns nil unless the socket failed. The caller must call it only once.
func (s *Server) Run(ctx context.Context) error {
	if err := s.port.Run(ctx); err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}

// Close closes a server on which Run is never called.
func (s *Server) Close() error { return s.port.Close() }

// bind listens on ip:port, or on a unix socket with the given mode.
func bind(ctx context.Context, address string, mode fs.FileMode) (net.Listener, error) {
	if unixaddr.Is(address) {
		return unixsocket.Listen(ctx, address, mode)
	}
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", address)
}

// WriteJSON writes v as the response. If v cannot be encoded, which is a bug, it writes an error.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		status = http.StatusInternalServerError
		text = []byte(`{"error": "the response could not be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client may have disconnected
}

// ErrorBody is the body of an error response.
type ErrorBody struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

// WriteError writes an error response: the problem, and a hint how to solve it, which may be "".
func WriteError(w http.ResponseWriter, status int, problem, hint string) {
	WriteJSON(w, status, ErrorBody{problem, hint})
}
