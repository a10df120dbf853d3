// Package admin owns the operator's port: what runs, how it is, and the few
// things that can be told to it.
//
//	Server     the port: addresses, timeouts, shutdown      admin.go
//	guard      who may ask: no foreign web page             guard.go
//	endpoints  what there is to ask, one table              endpoints.go
//	index      the same table for people                    index.go
//
// It knows nothing of the proxy: what it shows comes from the functions in
// Sources, as plain data.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/weft-proxy/weft/internal/unixsocket"
)

// Limits of the port. Nobody who is slow or greedy there costs the proxy much.
const (
	headTimeout     = 5 * time.Second
	readTimeout     = 10 * time.Second
	writeTimeout    = 90 * time.Second // a CPU profile of a minute fits
	idleTimeout     = 60 * time.Second
	maxHeaderBytes  = 16 << 10
	maxBodyBytes    = 4 << 10
	shutdownTimeout = 3 * time.Second
)

// Options describe a port. Immutable.
type Options struct {
	Address string // ip:port, or the path of a unix socket
	// Mode has the permissions of the unix socket: who may write may connect. 0: its owner
	// alone may.
	Mode fs.FileMode
	// Hosts are the host names that requests may have in addition to addresses and
	// localhost: without port, or "*.suffix".
	Hosts   []string
	Pprof   bool // serve /debug/pprof/
	Sources Sources
	Log     *slog.Logger // nil: no log
}

// State is how far the process is.
type State string

// The states.
const (
	Starting State = "starting"
	Ready    State = "ready"
	Draining State = "draining"
)

// Sources are where the answers come from. Each function may be called from
// several goroutines at once; what it returns is only read. An endpoint whose
// source is nil does not exist.
type Sources struct {
	State  func() State
	Config func() Config

	// Clusters, Listeners and Routes return what encoding/json can write: of the
	// cluster, listener or route table called name, nil if there is none; of all
	// if name is "".
	Clusters, Listeners, Routes func(name string) any

	// EnvoyClusters returns the clusters in the shape of Envoy's /clusters?format=json,
	// for encoding/json.
	EnvoyClusters func() any

	// Stats returns numbers under the names of Envoy, in any order.
	Stats func() []Stat

	// Overload returns what is watched and what is done about it, for encoding/json;
	// nil: nothing is configured.
	Overload func() any

	// XDS returns how it stands with control planes, for encoding/json; nil: none is
	// configured.
	XDS func() any

	// Dump returns what of the configuration came from a control plane, for encoding/json
	// as the list "configs" in the shape of Envoy's /config_dump; resource and endpoints
	// are its parameters resource and include_eds. nil: there is no control plane. An
	// error is one of the parameters.
	Dump func(resource string, endpoints bool) ([]any, error)

	// ServerInfo returns what runs, for encoding/json in the shape of Envoy's
	// /server_info.
	ServerInfo func() any

	// Explain says where a request would go, for encoding/json. An error is one of the
	// question.
	Explain func(question url.Values) (any, error)

	Level    func() string            // of the log
	SetLevel func(level string) error // an error says which levels there are

	Version func() Version
	Drain   func() // begins to drain and returns
	// Reload reads the configuration again and returns what came of it. The error is that
	// ctx ended before.
	Reload  func(ctx context.Context) (Reload, error)
	Metrics http.Handler
}

// Config is the running configuration.
type Config struct {
	Source  string    `json:"source"`  // file or server that it came from
	Hash    string    `json:"hash"`    // of its content
	Applied time.Time `json:"applied"` // when it became the running one
	// Rejected is the newest configuration, if it was refused; null else.
	Rejected *Rejection `json:"rejected"`
	// Config is the configuration with its secrets redacted: what encoding/json
	// can write, a json.RawMessage for one.
	Config any `json:"config"`
	// Dubbo is what the application publishes and subscribes, for encoding/json; nil: nothing.
	Dubbo any `json:"dubbo,omitempty"`
	// Configs is what came from a control plane, see Sources.Dump; nil: there is none.
	Configs []any `json:"configs,omitempty"`
}

// Rejection is why a configuration was refused.
type Rejection struct {
	At      time.Time `json:"at"`
	Reasons []string  `json:"reasons"`
}

// Reload is what came of reading the configuration again.
type Reload struct {
	Source  string `json:"source"`
	Applied bool   `json:"applied"` // false: what ran before goes on
	// Problems are why it was refused, and warnings.
	Problems []string `json:"problems,omitempty"`
	// Restart are keys that have changed since the start and take effect after a restart.
	Restart []string `json:"restart,omitempty"`
}

// Version is what runs.
type Version struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
}

// Server is a port. Made by Listen or ListenMetrics.
type Server struct {
	ln   net.Listener
	http *http.Server
}

// Listen binds the admin port. Requests queue in the kernel until Run.
func Listen(ctx context.Context, o Options) (*Server, error) {
	return listen(ctx, o.Address, o.Mode, newHandler(o), o.Log)
}

// ListenMetrics binds a port that answers scrapes at path and nothing else.
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
	if !isLoopback(ln.Addr()) {
		log.Warn("the port can be reached from other machines and asks for no credentials", "address", ln.Addr().String())
	}
	return &Server{ln, &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}, nil
}

// Addr returns the bound address.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Run answers until ctx ends, and then for at most three seconds what was asked
// before. It returns nil unless the socket failed, and is called once.
func (s *Server) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- s.http.Serve(s.ln) }()
	select {
	case err := <-ended:
		return fmt.Errorf("admin: %w", err)
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(patience); err != nil {
		_ = s.http.Close() // whoever still reads a profile
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}

// Close gives up a port that is not going to be run.
func (s *Server) Close() error { return s.ln.Close() }

// bind listens on ip:port, or on a unix socket with the mode given.
func bind(ctx context.Context, address string, mode fs.FileMode) (net.Listener, error) {
	if strings.Contains(address, "/") || unixsocket.IsAbstract(address) {
		return unixsocket.Listen(ctx, address, mode)
	}
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", address)
}

func isLoopback(a net.Addr) bool {
	address, err := netip.ParseAddrPort(a.String())
	return err != nil || address.Addr().Unmap().IsLoopback() // an error: a unix socket
}

// writeJSON answers with v. What cannot be encoded is a defect of a source.
func writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		status = http.StatusInternalServerError
		text = []byte(`{"error": "the answer could not be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client may be gone
}

// problem is the answer to a request that cannot be met.
type problem struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
}

func writeProblem(w http.ResponseWriter, status int, what, hint string) {
	writeJSON(w, status, problem{what, hint})
}
