// Package proxy runs successive configurations in one process. Its Server compiles a configuration
// into listeners, filter chains and routes, makes it active, and drains replaced and removed parts:
//
//	apply*.go             Apply: prepare, activate, drain; changes of only clusters and routes
//	plan.go               a configuration that is built and bound; activating it
//	build.go              composes the services of a filter chain and its routes
//	compiled_listener.go  a listener with its filter chains (chain*.go, inspect.go, chain_tls.go)
//	listener.go           a bound listener; its change to another configuration
//	drain.go              drains removed listeners and chains, and the whole server
//	datagram*.go          listeners and hosts of udp_proxy
//	upstream_*.go         connections to hosts; tcp_forwarder.go opens them for tcp_proxy
//	*_status.go           views for the admin port
//
// Its subpackages are:
//
//	service        services between the engine and the cluster of an exchange
//	pipeline       serves and records the exchanges of a filter chain, across configurations
//	accesslog      writes access logs
//	overload       protects the process when a resource is nearly used up
//	explain        the path of a request through a configuration
package proxy

import (
	"context"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-proxy/weft/internal/logfile"
	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/network"
	"github.com/weft-proxy/weft/pkg/network/credential"
	"github.com/weft-proxy/weft/pkg/proxy/overload"
	"github.com/weft-proxy/weft/pkg/proxy/pipeline"
	"github.com/weft-proxy/weft/pkg/stream"
	"github.com/weft-proxy/weft/pkg/upstream"
)

// Options are the dependencies of a Server. Immutable.
type Options struct {
	Protocols         []stream.Protocol
	StreamFilters     []filter.StreamFilterFactory
	ConnectionFilters []filter.ConnectionFilterFactory
	// TCPProxy returns the handler of a tcp_proxy filter.
	TCPProxy func(cfg config.TCPProxy, forwarder *TCPForwarder, log *slog.Logger) network.Handler
	// UDPProxy returns the server of a socket for a udp_proxy filter; nil: not supported.
	UDPProxy func(cfg config.UDPProxy, socket *network.PacketConn, hosts filter.HostLeaser, counts *filter.DatagramCounters, log *slog.Logger) (filter.PacketServer, error)
	// Upstream contains the options that the Server does not set, such as policies and discoveries.
	Upstream upstream.Options
	Logs     *logfile.Set
	Metrics  *metrics.Registry
	Log      *slog.Logger
	// System is the file system that contains proc and sys, for tests; nil: the file system of the
	// machine.
	System fs.FS
}

// Server runs successive configurations. A request uses the configuration that is active when it
// starts; the next request uses the new one.
type Server struct {
	o                Options // immutable
	clusters         *upstream.Set
	onDemand         *pipeline.OnDemandTables
	virtualListeners virtualListeners
	reloader         *credential.Reloader // certificates of listeners and clusters
	upstreamTLS      *upstreamTLS         // TLS clients of clusters
	overload         *overload.Manager
	datagrams        datagramListeners

	running          atomic.Pointer[config.Snapshot]
	draining         atomic.Bool
	healthFailed     atomic.Bool        // see SetHealthFailed
	tasks            sync.WaitGroup     // goroutines that Drain waits for: accept loops, drains, background work of filters
	backgroundCtx    context.Context    //nolint:containedctx // context of background tasks of filters; Drain cancels it
	cancelBackground context.CancelFunc // cancels backgroundCtx
	serveErrors      chan error         // carries the error of a listener that stopped serving

	applyCtx    context.Context //nolint:containedctx // Apply stops waiting when it ends
	cancelApply context.CancelFunc

	applying      sync.Mutex            // serializes Apply, Check and Drain
	tables        map[string]*liveTable // the active tables; guarded by applying
	previousEnded chan struct{}         // closed when the exchanges of earlier configurations have ended, or after the grace period; guarded by applying

	mu                sync.Mutex
	listeners         map[string]*liveListener             // by listenerKey; guarded by mu, changed under applying
	removedListeners  map[*liveListener]context.CancelFunc // force-closes a listener that drains; guarded by mu
	drainingListeners map[*liveListener]struct{}           // listeners that Drain waits for; guarded by mu
	stopScope         ListenerScope                        // see StopListeners; guarded by mu
	drainScope        ListenerScope                        // see DrainConnections; guarded by mu
}

// NewServer returns a server without a configuration.
func NewServer(o Options) *Server {
	s := &Server{
		o:                 o,
		serveErrors:       make(chan error, 1),
		previousEnded:     make(chan struct{}),
		listeners:         make(map[string]*liveListener),
		removedListeners:  make(map[*liveListener]context.CancelFunc),
		drainingListeners: make(map[*liveListener]struct{}),
	}
	s.onDemand = pipeline.NewOnDemandTables()
	s.overload = newOverloadManager(s)
	close(s.previousEnded) // there are no earlier configurations
	s.virtualListeners.publish(nil)
	s.backgroundCtx, s.cancelBackground = context.WithCancel(context.Background())
	s.applyCtx, s.cancelApply = context.WithCancel(context.Background())
	upstreamOptions := o.Upstream
	s.reloader = newCredentials(&s.o)
	s.upstreamTLS = newUpstreamTLS(s.reloader, o.Metrics)
	upstreamOptions.Connectors = connectors(o.Protocols, s.upstreamTLS)
	upstreamOptions.Dial = func(ctx context.Context, h *upstream.Host, deadline time.Time) (*network.Conn, error) {
		return s.upstreamTLS.dial(ctx, h, nil, connOrigin{}, deadline)
	}
	s.clusters = upstream.NewSet(upstreamOptions)
	return s
}

// Running returns the active configuration, or nil before the first Apply.
//
// Its clusters are those of the last complete configuration that Apply applied; Clusters includes
// later changes.
func (s *Server) Running() *config.Snapshot { return s.running.Load() }

// OnDemandRoutes returns the requests for on-demand route tables.
func (s *Server) OnDemandRoutes() pipeline.OnDemandRoutes { return s.onDemand.Requests() }

// Clusters returns the active clusters.
func (s *Server) Clusters() *upstream.Set { return s.clusters }

// SetHealthFailed sets whether health checks fail that the healthcheck filter responds to. It lasts
// across reloads.
func (s *Server) SetHealthFailed(failed bool) { s.healthFailed.Store(failed) }

// HealthFailed returns the last value of SetHealthFailed.
func (s *Server) HealthFailed() bool { return s.healthFailed.Load() }

// Failed returns a channel that receives the first error of a listener that stopped serving.
func (s *Server) Failed() <-chan error { return s.serveErrors }
