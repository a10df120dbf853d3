// Package admin implements the admin port, which shows what runs and takes a few commands.
//
//	Server     address, limits                              admin.go
//	guard      rejects requests of foreign web pages        guard.go
//	endpoints  table of all endpoints                       endpoints.go
//	index      lists the endpoints                          index.go
//
// The package does not import the proxy: the functions in Sources return what it shows, as plain
// data.
package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weft-proxy/weft/internal/httpport"
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
	// Hosts are the host names, without port or as "*.suffix", that requests may have in addition
	// to IP addresses and localhost.
	Hosts   []string
	Pprof   bool // serve /debug/pprof/
	Sources Sources
	Log     *slog.Logger // nil discards the log
}

// State is the phase of the process.
type State string

// States of the process.
const (
	Starting State = "starting"
	Ready    State = "ready"
	Draining State = "draining"
)

// Sources provide the data that the port shows. Several goroutines may call each function
// concurrently, and the port does not modify what it returns. An endpoint whose source is nil does
// not exist.
type Sources struct {
	State  func() State
	Config func() Config

	// Clusters, Listeners and Routes return a value for encoding/json: the cluster, listener or
	// route table called name, or nil if it does not exist; all of them if name is "".
	Clusters, Listeners, Routes func(name string) any

	// EnvoyClusters returns the clusters for encoding/json, in the shape of Envoy's
	// /clusters?format=json.
	EnvoyClusters func() any

	// Stats returns values under Envoy's names, in any order.
	Stats func() []Stat

	// Overload returns the state of the overload manager, for encoding/json; nil if none is
	// configured.
	Overload func() any

	// XDS returns the state of the control planes, for encoding/json; nil if none is configured.
	XDS func() any

	// Dump returns the resources that control planes sent, for encoding/json as the list "configs"
	// in the shape of Envoy's /config_dump. resource and endpoints are its parameters resource and
	// include_eds. Dump returns nil if there is no control plane, and an error if a parameter is
	// invalid.
	Dump func(resource string, endpoints bool) ([]any, error)

	// ServerInfo returns a value for encoding/json in the shape of Envoy's /server_info.
	ServerInfo func() any

	// Explain returns where a request would go, for encoding/json. It returns an error if the
	// question is invalid.
	Explain func(question url.Values) (any, error)

	Level    func() string            // log level
	SetLevel func(level string) error // the error lists the valid levels

	Version func() Version
	Drain   func() // starts a drain and returns
	// Reload reads the configuration again and returns the result. It returns an error only if ctx
	// ends first.
	Reload  func(ctx context.Context) (Reload, error)
	Metrics http.Handler
}

// Config is the active configuration.
type Config struct {
	Source  string    `json:"source"`  // file or server that it came from
	Hash    string    `json:"hash"`    // of the content
	Applied time.Time `json:"applied"` // when it became active
	// Rejected is the newest configuration if it was rejected, else null.
	Rejected *Rejection `json:"rejected"`
	// Config is the configuration with its secrets redacted, as a value for encoding/json such as a
	// json.RawMessage.
	Config any `json:"config"`
	// Dubbo shows the services that the application publishes and subscribes to, for encoding/json;
	// nil: none.
	Dubbo any `json:"dubbo,omitempty"`
	// Configs holds the resources that control planes sent, see Sources.Dump; nil: there is no
	// control plane.
	Configs []any `json:"configs,omitempty"`
}

// Rejection says why a configuration was rejected.
type Rejection struct {
	At      time.Time `json:"at"`
	Reasons []string  `json:"reasons"`
}

// Reload is the result of reading the configuration again.
type Reload struct {
	Source  string `json:"source"`
	Applied bool   `json:"applied"` // false: the previous configuration stays active
	// Problems holds the reasons for a rejection, and warnings.
	Problems []string `json:"problems,omitempty"`
	// Restart lists the changed keys that take effect after a restart.
	Restart []string `json:"restart,omitempty"`
}

// Version identifies the build.
type Version struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
}

// Server is one HTTP port. Listen and ListenMetrics return one.
type Server struct{ port *httpport.Server }

// Listen binds the admin port. Connections queue in the kernel until Run.
func Listen(ctx context.Context, o Options) (*Server, error) {
	return listen(ctx, o.Address, o.Mode, newHandler(o), o.Log)
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

// Close closes a port that will not run.
func (s *Server) Close() error { return s.port.Close() }

// bind listens on ip:port, or on a unix socket with the given mode.
func bind(ctx context.Context, address string, mode fs.FileMode) (net.Listener, error) {
	if strings.Contains(address, "/") || unixsocket.IsAbstract(address) {
		return unixsocket.Listen(ctx, address, mode)
	}
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", address)
}

// writeJSON writes v as the response. A value that cannot be encoded is a bug of its source.
func writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		status = http.StatusInternalServerError
		text = []byte(`{"error": "the response could not be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client may have disconnected
}

// errorBody is the body of an error response.
type errorBody struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

func writeError(w http.ResponseWriter, status int, what, hint string) {
	writeJSON(w, status, errorBody{what, hint})
}
