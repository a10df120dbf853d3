// Package config owns the checked model of a configuration: plain structs that
// two front doors fill (configjson, xds) and that nobody changes once built.
package config

import (
	"io/fs"
	"net/netip"
	"time"
)

// Snapshot is one whole configuration. It is immutable once built; what it
// names has been checked, so that applying it can only fail on the outside
// world (a port in use, a file gone).
type Snapshot struct {
	Server    Server
	Listeners []*Listener   // names are unique
	Routes    []*RouteTable // names are unique
	Clusters  []*Cluster    // names are unique
	Admin     *Admin        // nil: no admin port
	Metrics   Metrics
	Bootstrap Bootstrap     // where more of it comes from
	Overload  *Overload     // nil: nothing is watched
	Dubbo     DubboRegistry // of services that the application provides and calls
}

// Server is what concerns the whole process.
type Server struct {
	Name            string
	Log             Log
	GracefulTimeout time.Duration // how long a drain may take; default 30 s
	Processor       int           // cap on threads running Go code; 0: the CPUs that the process may use
	PIDFile         string        // "" for none
}

// Log says where the operator's log goes.
type Log struct {
	Path   string // "stderr" (default), "stdout", or a file
	Level  Level
	JSON   bool   // one JSON object a line; false: key=value
	Roller Roller // of files
}

// Level is the least severe level that is logged.
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

// Roller says when a log file is rotated and what is kept.
type Roller struct {
	MaxSizeMB int           // rotate above this size; 0: not by size
	Every     time.Duration // rotate at this age; 0: not by age
	MaxDays   int           // delete rotated files older than this; 0: never
	Keep      int           // rotated files kept; 0: all
	Compress  bool
}

// Admin is the operator's port.
type Admin struct {
	Address string      // ip:port, or a unix path
	Mode    fs.FileMode // of the unix socket: who may write may connect; 0: its owner alone
	// Hosts are the host names that requests may have in addition to addresses and
	// localhost: in lower case, "name" or "*.suffix".
	Hosts []string
	Pprof bool
}

// Metrics says what is exported.
type Metrics struct {
	Prometheus *Prometheus // a port of its own; nil: only the admin port's /stats/prometheus
	RejectAll  bool
	// Exclude names labels and metrics that are not exported.
	ExcludeLabels, ExcludeKeys []string
}

// Prometheus is a scrape port beside the admin's.
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
	Bind           bool   // false: fed by another listener
	OriginalDst    Redirection
	KeepRedirected bool // of OriginalDst: virtual listeners are handed nothing, it serves all itself
	ReusePort      bool
	Mark           int            // of the socket and those that it accepts (SO_MARK); 0: none
	MaxConnections int            // 0: no limit
	AcceptRate     AcceptRate     // PerSecond 0: no limit
	KeepAlive      TCPKeepAlive   // of its connections
	IdleTimeout    time.Duration  // of a connection without an exchange; 0: none
	ProxyProtocol  *ProxyProtocol // what connections begin with; nil: nothing of its own
	AccessLogs     []AccessLog
	// FilterChains are told apart by their matches, of which no two are the same.
	// DefaultChain is for the connections that none is for; nil: they are closed.
	FilterChains []*FilterChain
	DefaultChain *FilterChain
	// InspectTimeout is from when a connection was accepted until it has shown what the
	// matches ask for; 0: 15 s.
	InspectTimeout time.Duration
	Inspection     Inspection
}

// AccessLog is one log of exchanges.
type AccessLog struct {
	Path   string     // a file, "stdout" or "stderr"
	Format string     // MOSN's %var% format; "" for the default format
	JSON   []LogField // set: one JSON object a line, in this order, instead of Format
	Roller Roller
}

// LogField is one member of a JSON access log line.
type LogField struct{ Name, Format string }

// FilterChain is what a connection meets: Proxy, or TCPProxy, or both if
// Proxy.Fallback sends what Proxy does not know to TCPProxy.
type FilterChain struct {
	// Name tells the chain from the listener's others, also over changes of its match;
	// "": the match does.
	Name      string
	Match     ChainMatch
	TLS       []*TLS   // one is chosen by SNI, then ALPN, else the first; none: plaintext
	Inspector bool     // with TLS: callers that do not begin with a handshake speak plaintext
	Gates     []Filter // network filters that decide about connections before they are served, or watch what is carried, in order
	Proxy     *Proxy
	TCPProxy  *TCPProxy
	UDPProxy  *UDPProxy // alone, and of listeners of the network udp
}

// Proxy is the network filter that speaks protocols and routes exchanges.
type Proxy struct {
	Downstream    []Protocol // more than one: detect, in this order; Auto alone: whatever is built and Upstream can be sent
	Upstream      Protocol   // Auto or "": as downstream
	RouteTable    string     // RouteTable.Name
	Fallback      bool       // unknown bytes go to the next network filter
	HTTP1         HTTP1Options
	HTTP2         HTTP2Options
	RPC           RPCOptions
	StreamFilters []Filter
	Targets       TargetRules
	CallerFields  CallerFields
	// ForwardedScheme: the scheme of an HTTP/1.1 request is what X-Forwarded-Proto says,
	// if that is http or https. The reader sets it where that field is trusted.
	ForwardedScheme bool

	DetectTimeout time.Duration // until a connection has shown its protocol, if there is a choice; default 10 s
}

// RPCOptions are the limits and habits of the engine of framed RPC protocols.
// DefaultRPCOptions fills them; 0 means no limit only where it says so.
type RPCOptions struct {
	MaxFrameSize int           // bytes, as the frame declares; default 8 MiB, as of the protocols' own peers; 0: no limit
	MaxInFlight  int           // requests of one connection that wait for their answer; then it is not read; default 10,000; 0: no limit
	MaxQueued    int           // bytes that wait for a peer that does not read; then a caller's connection ends, and requests to a host fail; default 64 MiB
	FrameTimeout time.Duration // between two reads of a frame that has begun; default 30 s
	WriteTimeout time.Duration // between two writes that make progress; default 30 s
	// GoAway: callers are told of a drain also in a protocol of which many peers do
	// not know how that is said; default false.
	GoAway bool
	// PingInterval is how long an upstream connection may be silent before it is
	// asked whether it lives; default 15 s; 0: never. PingMisses is how many
	// answers may be missing before it is given up; default 6.
	PingInterval time.Duration
	PingMisses   int
}

// DefaultRPCOptions returns the defaults.
func DefaultRPCOptions() RPCOptions {
	return RPCOptions{
		MaxFrameSize: 8 << 20,
		MaxInFlight:  10_000,
		MaxQueued:    64 << 20,
		FrameTimeout: 30 * time.Second,
		WriteTimeout: 30 * time.Second,
		PingInterval: 15 * time.Second,
		PingMisses:   6,
	}
}

// HTTP1Options are the limits and habits of the HTTP/1.1 engine. New fills the
// defaults; a zero duration or size means no limit only where it says so.
type HTTP1Options struct {
	MaxRequestLineSize       int           // bytes; default 8192; above: 414
	MaxHeaderSize            int           // bytes of the whole head; default 8192+MaxRequestLineSize… see DefaultHTTP1Options; above: 431
	MaxHeaderCount           int           // fields; default 100; above: 431
	MaxRequestBodySize       int64         // bytes; 0: no limit (default); above: 413
	HeadTimeout              time.Duration // first byte to end of head; default 10 s; 408
	BodyTimeout              time.Duration // between two reads of a request body; default 30 s; 0: no limit; 408
	WriteTimeout             time.Duration // between two writes that make progress; default 30 s
	StreamIdleTimeout        time.Duration // without a byte of the request, of its answer or, in place of the connection's idle timeout, of its tunnel; 0: no limit (default); 408, 504, or the end of the connection within an answer
	MaxRequestsPerConnection int           // then the connection is closed; 0: no limit (default)
	Via                      string        // pseudonym added to Via both ways; "" (default): none
	XForwarded               ForwardedMode // X-Forwarded-For, -Proto, -Host
	ForwardedHost            bool          // XForwarded adds X-Forwarded-Host, too; Envoy's listeners do not (default)
	ForwardedProto           ProtoMode     // X-Forwarded-Proto, beyond what XForwarded does
	ClientHop                int           // the client is the address at this place from the end of X-Forwarded-For as received; 0 (default), or no address there: the connection's other end
	ClientPlain              bool          // an entry of X-Forwarded-For with a port, or in brackets, is no address, as in Envoy; default false: it is one
	ClientCert               ClientCert    // X-Forwarded-Client-Cert
	AllowHalfClose           bool          // a client that ended its direction still gets a slow answer; default false
	AllowConnect             bool          // routes may match CONNECT; default false: 405
	ServerName               string        // Server field of replies of our own; "" (default): none
	Accept                   HTTP1Accept   // which valid requests are served
}

// HTTP1Accept says which requests are served that RFC 9112 allows. The zero value serves
// all of them, as MOSN does; Envoy's listeners serve fewer by default.
type HTTP1Accept struct {
	RefuseHTTP10      bool   // HTTP/1.0 is answered with 426
	RefuseNoHost      bool   // HTTP/1.0 without Host, and without DefaultHost, is answered with 400
	DefaultHost       string // authority of HTTP/1.0 without Host; "": none
	RefuseAbsolute    bool   // a target in absolute form (RFC 9112 3.2.2) is answered with 404
	KnownMethodsAlone bool   // a method that Envoy's parser does not know is answered with 400
}

// ForwardedMode says what happens to the X-Forwarded-* fields.
type ForwardedMode string

// The modes.
const (
	ForwardedKeep   ForwardedMode = ""       // pass on as received
	ForwardedAppend ForwardedMode = "append" // trust the caller: append its address
	ForwardedSet    ForwardedMode = "set"    // trust nobody: replace
	ForwardedStrip  ForwardedMode = "strip"  // remove
)

// ProtoMode says what becomes of X-Forwarded-Proto.
type ProtoMode string

// What becomes of it.
const (
	ProtoAsForwarded ProtoMode = ""    // what ForwardedMode says
	ProtoAdd         ProtoMode = "add" // it is added where it is missing
	ProtoSet         ProtoMode = "set" // it is set anew: the caller is no trusted proxy
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

// TCPProxy is the network filter that carries bytes.
type TCPProxy struct {
	Cluster            string // when no route matches; "" to close
	Routes             []TCPRoute
	IdleTimeout        time.Duration // without a byte either way; default 10 min
	MaxConnectAttempts int           // hosts tried; default 1
}

// TCPRoute sends connections between address ranges to a cluster. An empty list
// matches every address.
type TCPRoute struct {
	Cluster          string
	SourceAddrs      []netip.Prefix
	SourcePorts      []PortRange
	DestinationAddrs []netip.Prefix
	DestinationPorts []PortRange
}

// PortRange is first to last, both included.
type PortRange struct{ First, Last uint16 }

// Filter is a stream filter by name with its own checked configuration.
type Filter struct {
	Name   string
	Config any // what the filter's registered Config function returned, filled; or FilterMissing
	// Off: of the routes, only those meet the filter that have settings for it, or FilterOn.
	// One that runs before routes are chosen cannot be off.
	Off bool
}
