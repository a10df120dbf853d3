// Package config defines the model of a validated configuration. Packages configjson, xds and dubbo
// build it; afterwards it is immutable.
package config

import (
	"io/fs"
	"net/netip"
	"time"
)

// Snapshot is one complete configuration. It is immutable once built. The names in it have been
// validated, so that applying it can fail only for external reasons, such as a port in use or a
// missing file.
type Snapshot struct {
	Server    Server
	Listeners []*Listener   // names are unique
	Routes    []*RouteTable // names are unique
	Clusters  []*Cluster    // names are unique
	Admin     *Admin        // nil: no admin port
	Profiler  string        // ip:port that serves profiles and nothing else; "": none
	Metrics   Metrics
	Bootstrap Bootstrap     // the connection to the control plane, which sends more configuration
	Overload  *Overload     // nil: no overload manager
	Dubbo     DubboRegistry // for services that the application provides and calls
}

// Server holds the process-wide settings.
type Server struct {
	Name            string
	Log             Log
	GracefulTimeout time.Duration // maximum duration of a drain; default 30 s
	MaxProcs        int           // maximum number of threads that run Go code; 0: the CPUs that the process may use
	PIDFile         string        // "" for none
}

// Log configures the operator's log.
type Log struct {
	Path     string // "stderr" (default), "stdout", or a file
	Level    Level
	JSON     bool   // one JSON object per line; false: key=value
	Rotation Roller // if Path is a file
}

// Level is the lowest severity that is logged.
type Level string

// The levels, least severe first.
const (
	LevelTrace    Level = "TRACE"
	LevelDebug    Level = "DEBUG"
	LevelInfo     Level = "INFO"
	LevelWarn     Level = "WARN"
	LevelError    Level = "ERROR"
	LevelCritical Level = "CRITICAL"
	LevelOff      Level = "OFF"
)

// Roller configures when a log file is rotated and which rotated files are kept.
type Roller struct {
	MaxSizeMB  int           // rotate above this size; 0: not by size
	Interval   time.Duration // rotate at this age; 0: not by age
	MaxDays    int           // delete rotated files older than this; 0: never
	MaxBackups int           // rotated files kept; 0: all
	Compress   bool
}

// Admin configures the admin port.
type Admin struct {
	Address string      // ip:port, or a unix path
	Mode    fs.FileMode // permissions of the unix socket: users with write permission may connect; 0: only its owner
	// Hosts are the accepted host names of requests, in addition to IP addresses and localhost:
	// "name" or "*.suffix", in lower case.
	Hosts []string
	Pprof bool
}

// Metrics configures which metrics are exported.
type Metrics struct {
	Prometheus *Prometheus // a separate port; nil: only /stats/prometheus on the admin port
	RejectAll  bool
	// ExcludeLabels and ExcludeKeys are the labels and metrics that are not exported.
	ExcludeLabels, ExcludeKeys []string
}

// Prometheus is a scrape port that is separate from the admin port.
type Prometheus struct {
	Address string
	Path    string
}

// Listener accepts connections and runs each through one of its filter chains.
type Listener struct {
	Name           string
	Ingress        bool   // serves the local application; false: egress
	Network        string // "tcp", "unix" or "udp"
	Address        string // ip:port, or a path
	Bind           bool   // false: it receives connections from another listener
	OriginalDst    OriginalDstMode
	KeepRedirected bool // with OriginalDst: the listener serves all redirected connections and passes none to other listeners
	ReusePort      bool
	Mark           int            // SO_MARK of the socket and of accepted sockets; 0: none
	MaxConnections int            // 0: no limit
	AcceptRate     AcceptRate     // PerSecond 0: no limit
	KeepAlive      TCPKeepAlive   // of accepted connections
	IdleTimeout    time.Duration  // of a connection without a request in flight; 0: none
	ProxyProtocol  *ProxyProtocol // header at the start of connections; nil: none expected
	AccessLogs     []AccessLog
	// FilterChains have distinct matches. DefaultChain serves the connections that match no chain;
	// nil: they are closed.
	FilterChains []*FilterChain
	DefaultChain *FilterChain
	// InspectTimeout bounds the wait for the first bytes of a connection that the matches need,
	// after its PROXY protocol header; 0: 15 s.
	InspectTimeout time.Duration
	Inspection     Inspection
}

// AccessLog configures one access log.
type AccessLog struct {
	Path     string     // a file, "stdout" or "stderr"
	Format   string     // MOSN's %var% format; "" for the default format
	JSON     []LogField // if set: one JSON object per line with these fields in order, instead of Format
	Rotation Roller
}

// LogField is one member of a JSON access log line.
type LogField struct{ Name, Format string }

// FilterChain processes the connections that match it: with Proxy, with TCPProxy, or with both if
// Proxy.Fallback passes connections of an unknown protocol to TCPProxy.
type FilterChain struct {
	// Name identifies the chain within the listener, even if its match changes; "": the match
	// identifies it.
	Name              string
	Match             ChainMatch
	TLS               []*TLS   // selected by SNI, then by ALPN; if none matches, the first is used; empty: plaintext
	AllowPlaintext    bool     // with TLS: connections that do not begin with a TLS handshake use plaintext
	ConnectionFilters []Filter // network filters that allow or deny connections, or observe those that TCPProxy relays, in order
	Proxy             *Proxy
	TCPProxy          *TCPProxy
	UDPProxy          *UDPProxy // on a listener with Network "udp": the only filter
}

// Proxy is the network filter that decodes protocols and routes requests.
type Proxy struct {
	Downstream    []Protocol // several: detected in this order; Auto alone: every supported protocol that Upstream can carry
	Upstream      Protocol   // Auto or "": the protocol of the client
	RouteTable    string     // RouteTable.Name
	Fallback      bool       // connections of an unknown protocol go to the next network filter
	HTTP1         HTTP1Options
	HTTP2         HTTP2Options
	RPC           RPCOptions
	StreamFilters []Filter
	Targets       TargetNormalization
	ClientHeaders ClientHeaders
	Replies       Replies
	Upgrades      *UpgradeRules  // nil: all protocols, and CONNECT if HTTP1.AllowConnect is set
	RouterHeaders *RouterHeaders // headers of Envoy's router; nil: none
	// ForwardedScheme takes the scheme of an HTTP/1.1 request from X-Forwarded-Proto if that is
	// http or https. The reader of the configuration sets it if the HTTP/1.1 engine trusts or
	// replaces that header.
	ForwardedScheme bool

	DetectTimeout time.Duration // from the first byte of a connection until its protocol is detected; default 10 s
}

// RPCOptions are the limits of the engine for framed RPC protocols. DefaultRPCOptions returns the
// defaults; 0 means no limit only where a field says so.
type RPCOptions struct {
	MaxFrameSize    int           // bytes, as declared by the frame; default 8 MiB, the default of other implementations of the protocols; 0: no limit
	MaxInFlight     int           // requests in flight on one connection; at the limit Weft stops reading from the connection; default 10,000; 0: no limit
	MaxPendingBytes int           // pending bytes on one connection; above the limit a client connection is closed, and requests to a host fail; default 64 MiB
	FrameTimeout    time.Duration // between two reads of an incomplete frame; default 30 s
	WriteTimeout    time.Duration // between two writes that make progress; default 30 s
	// SendGoAway sends clients a drain notice even in protocols whose implementations often do not
	// understand it; default false.
	SendGoAway bool
	// HeartbeatInterval is the idle time of an upstream connection before Weft sends a heartbeat;
	// default 15 s; 0: never. MaxMissedHeartbeats is the number of missed heartbeat responses that
	// closes the connection; default 6.
	HeartbeatInterval   time.Duration
	MaxMissedHeartbeats int
}

// DefaultRPCOptions returns the defaults.
func DefaultRPCOptions() RPCOptions {
	return RPCOptions{
		MaxFrameSize:        8 << 20,
		MaxInFlight:         10_000,
		MaxPendingBytes:     64 << 20,
		FrameTimeout:        30 * time.Second,
		WriteTimeout:        30 * time.Second,
		HeartbeatInterval:   15 * time.Second,
		MaxMissedHeartbeats: 6,
	}
}

// HTTP1Options are the limits and options of the HTTP/1.1 engine. DefaultHTTP1Options returns the
// defaults; 0 means no limit only where a field says so.
type HTTP1Options struct {
	MaxRequestLineSize       int                // bytes; default 8 KiB; above: 414
	MaxHeaderSize            int                // bytes of the head, with the request line; default 16 KiB; above: 431
	MaxHeaderCount           int                // header fields; default 100; above: 431
	MaxRequestBodySize       int64              // bytes; 0: no limit (default); above: 413
	HeadTimeout              time.Duration      // from the first byte to the end of the head; then 408; default 10 s
	BodyTimeout              time.Duration      // between two reads of a request body; then 408; default 30 s; 0: no limit
	WriteTimeout             time.Duration      // between two writes that make progress; default 30 s
	StreamIdleTimeout        time.Duration      // time without a byte of the request or response; then 408, 504, or a close if the response has begun; for a tunnel, replaces the idle timeout of the connection; 0: no limit (default)
	MaxRequestsPerConnection int                // requests after which Weft closes the connection; 0: no limit (default)
	Via                      string             // pseudonym added to Via in requests and responses; "" (default): none
	XForwarded               ForwardedMode      // X-Forwarded-For, -Proto, -Host
	XForwardedHost           bool               // XForwarded also adds X-Forwarded-Host; default false, as for Envoy's listeners
	XForwardedProto          ForwardedProtoMode // X-Forwarded-Proto, in addition to XForwarded
	XFFClientIndex           int                // entry of the received X-Forwarded-For that is the client address, counted from 1 at the end; 0 (default), or no valid address in the entry: the address of the connection
	XFFBareAddressOnly       bool               // an entry of X-Forwarded-For with a port or in brackets is not a valid address, as in Envoy; default false: it is valid
	XFCC                     XFCC               // X-Forwarded-Client-Cert
	AllowHalfClose           bool               // a client that has half-closed its connection still gets its responses; default false: a half-close counts as a disconnect
	AllowConnect             bool               // routes may match CONNECT; default false: 405
	ServerName               string             // Server header of local replies; "" (default): none
	Accept                   HTTP1Accept        // which valid requests are accepted
	Underscores              UnderscoreAction   // treatment of headers with underscores in their names; for HTTP/2 too; default: forward them
}

// HTTP1Accept restricts the requests that RFC 9112 allows. The zero value accepts all of them, as
// MOSN does; Envoy's listeners accept fewer by default.
type HTTP1Accept struct {
	RejectHTTP10       bool   // reject HTTP/1.0 with 426
	RejectMissingHost  bool   // reject HTTP/1.0 without Host, and without DefaultHost, with 400
	DefaultHost        string // authority of HTTP/1.0 without Host; "": none
	RejectAbsoluteForm bool   // reject a request target in absolute form (RFC 9112 3.2.2) with 404
	KnownMethodsOnly   bool   // reject with 400 a method that Envoy's parser does not know
}

// ForwardedMode says how requests get X-Forwarded-* headers.
type ForwardedMode string

// The modes.
const (
	ForwardedKeep   ForwardedMode = ""       // pass them on as received
	ForwardedAppend ForwardedMode = "append" // trust the client: append its address
	ForwardedSet    ForwardedMode = "set"    // trust no client: replace them
	ForwardedStrip  ForwardedMode = "strip"  // remove them
)

// ForwardedProtoMode says how requests get X-Forwarded-Proto.
type ForwardedProtoMode string

// The modes.
const (
	ForwardedProtoDefault ForwardedProtoMode = ""    // ForwardedMode applies
	ForwardedProtoAdd     ForwardedProtoMode = "add" // add it where it is missing
	ForwardedProtoSet     ForwardedProtoMode = "set" // replace it: the client is not a trusted proxy
)

// DefaultHTTP1Options returns the defaults.
func DefaultHTTP1Options() HTTP1Options {
	return HTTP1Options{
		MaxRequestLineSize: 8 << 10,
		MaxHeaderSize:      16 << 10,
		MaxHeaderCount:     100,
		HeadTimeout:        10 * time.Second,
		BodyTimeout:        30 * time.Second,
		WriteTimeout:       30 * time.Second,
	}
}

// TCPProxy is the network filter that forwards connections as bytes.
type TCPProxy struct {
	Cluster            string // if no route matches; "": WeightedClusters or, if there are none, close the connection
	Routes             []TCPRoute
	WeightedClusters   []WeightedTCPCluster
	Metadata           map[string]string // labels of the hosts, if the cluster has subsets; nil: none
	HashSourceIP       bool              // the address of the client selects the host, if the cluster uses consistent hashing
	MaxDuration        time.Duration     // of a connection, from its start; 0: no limit
	IdleTimeout        time.Duration     // without a byte in either direction; default 10 min
	MaxConnectAttempts int               // hosts to try; default 1
}

// WeightedTCPCluster is one weighted target of connections.
type WeightedTCPCluster struct {
	Cluster  string
	Weight   uint32            // at least 1
	Metadata map[string]string // in addition to those of the filter; takes precedence
}

// TCPTarget says to which hosts a connection goes.
type TCPTarget struct {
	Cluster  string
	Metadata map[string]string // see TCPProxy
	Hash     uint64            // selects the host if the cluster uses consistent hashing; 0: none
}

// TCPRoute sends connections between address ranges to a cluster. An empty list matches every
// address or port.
type TCPRoute struct {
	Cluster          string
	SourceAddrs      []netip.Prefix
	SourcePorts      []PortRange
	DestinationAddrs []netip.Prefix
	DestinationPorts []PortRange
}

// PortRange is the range of ports from First to Last, inclusive.
type PortRange struct{ First, Last uint16 }

// Filter is a stream filter or a connection filter with its validated configuration.
type Filter struct {
	Name   string
	Config any // the decoded settings, in the type that the filter factory's Config returns; or FilterConfigMissing
	// RouteKey is the key of the settings of a stream filter in Route.Filters; "": Name.
	RouteKey string
	// Disabled disables a stream filter on all routes except those that have settings for it or
	// FilterEnabled. A filter that runs before route selection cannot be disabled.
	Disabled bool
}
