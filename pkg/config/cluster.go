package config

import "time"

// ClusterType says how a cluster gets its hosts.
type ClusterType string

// The types of clusters.
const (
	ClusterStatic ClusterType = "STATIC" // SIMPLE is a synonym
	// ClusterAggregate is a cluster without hosts of its own: it sends requests to the clusters in
	// Aggregate. config.json has no name for it.
	ClusterAggregate ClusterType = "AGGREGATE"
)

// LBPolicy is a load-balancing policy.
type LBPolicy string

// The load-balancing policies.
const (
	RoundRobin         LBPolicy = "LB_ROUNDROBIN"
	WeightedRoundRobin LBPolicy = "LB_WEIGHTED_ROUNDROBIN"
	Random             LBPolicy = "LB_RANDOM"
	LeastRequest       LBPolicy = "LB_LEAST_REQUEST"
	LeastConnection    LBPolicy = "LB_LEAST_CONNECTION"
	PeakEWMA           LBPolicy = "LB_PEAK_EWMA"
	RingHash           LBPolicy = "LB_RINGHASH"
	Maglev             LBPolicy = "LB_MAGLEV"
	RequestRoundRobin  LBPolicy = "LB_REQUEST_ROUNDROBIN"
)

// LBAggregate is the only policy of ClusterAggregate; no other type supports it.
const LBAggregate LBPolicy = "LB_AGGREGATE"

// UsesHash reports whether the policy selects hosts by the hash of the request.
func (p LBPolicy) UsesHash() bool { return p == RingHash || p == Maglev }

// Cluster is a set of hosts that serve the same requests.
type Cluster struct {
	Name     string
	Type     ClusterType
	LBPolicy LBPolicy
	// Protocol is the protocol of the hosts if the route sets none. "" means the protocol that the
	// proxy sets; Auto means the protocol of the client, whatever the proxy sets.
	Protocol Protocol
	// GRPCOverHTTP1 sends gRPC calls of HTTP/2 clients over HTTP/1.1 to hosts that use HTTP/1.1, as
	// Envoy does. The hosts must understand such calls. If GRPCOverHTTP1 is false, Weft rejects
	// them.
	GRPCOverHTTP1 bool
	// ZeroLength adds "Content-Length: 0" to HTTP/1.1 requests without a body, as Envoy does, unless
	// their method is GET, HEAD, DELETE, TRACE or CONNECT. POST, PUT and PATCH requests always have it.
	ZeroLength bool

	ChoiceCount int // hosts compared by least request, least connection and peak EWMA; default 2
	// ActiveRequestBias is the exponent of the requests in flight when least request compares hosts
	// of different weights; default 1.
	ActiveRequestBias float64
	MinRingSize       int // minimum number of points of the ring hash; 0: determined by the weights
	MaxRingSize       int // 0 means 8,388,608
	MaglevTableSize   int // size of the maglev table, a prime; 0: 65,537, or 655,373 for many hosts

	// Aggregate has the names of the clusters of a ClusterAggregate. Their priorities follow each other
	// in this order. A cluster that is not configured, or is a ClusterAggregate itself, has no hosts.
	Aggregate []string

	Subsets         Subsets
	HostRules       HostRules // select hosts by request content; only discovery sets them; nil: none
	SlowStart       SlowStart
	Failover        Failover
	LocalityWeights []LocalityWeight // localities that get load; empty: load is not split by locality

	// The defaults of the next three fields are those of config.json. For a cluster of a control
	// plane they are 5 s, 1 h and 0.
	ConnectTimeout      time.Duration // default 10 s
	IdleTimeout         time.Duration // of a pooled connection; default 60 s
	MaxRequestsPerConn  int           // maximum requests on a connection that carries one request at a time; for multiplexed connections see Pool; 0: no limit; default 1024
	Pool                Pool
	Heartbeat           Heartbeat
	HTTP                UpstreamHTTP
	CircuitBreakers     CircuitBreakers // for requests of DefaultPriority
	HighCircuitBreakers CircuitBreakers // for requests of HighPriority
	TLS                 *TLS            // TLS on connections to the hosts; nil: plaintext
	AlternateTLS        []*TLS          // TLS for the hosts that select an element by Host.TLSIndex; only a control plane sets it
	AutoSNI             AutoSNI
	ProxyProtocol       int // version (1 or 2) of the PROXY header that Weft sends on each connection, which then serves one client connection; 0: none
	Mark                int // SO_MARK of the sockets to the hosts, for kernel rules; 0: none
	OriginalDst         OriginalDst
	Socket              Socket
	Hosts               []Host
	DropOverloads       []DropOverload // fractions of requests to drop, applied in order; only a control plane sets them
	DNS                 DNS
	HealthCheck         *HealthCheck      // nil: no active checks
	OutlierDetection    *OutlierDetection // nil: no passive health checks
	Mesh                Mesh
	OnDemand            OnDemand // on-demand loading of Hosts; only a control plane sets it
}

// UpstreamHTTP holds the options of the HTTP connections to a cluster's hosts. The zero value of a
// field means the default of HTTP1Options or HTTP2Options, or no limit. config.json has no keys for
// them.
type UpstreamHTTP struct {
	MaxHeaderSize  int // bytes of the head of a response
	MaxHeaderCount int // header fields of a response
	StreamWindow   int // HTTP2Options.StreamWindow
	MaxStreams     int // concurrent requests on an HTTP/2 connection, in addition to the limit of the host
	// MaxConnectionDuration is the age at which a connection takes no more requests. It closes after
	// its last one.
	MaxConnectionDuration time.Duration
	// HTTP2WithoutALPN uses HTTP/2 over TLS although the host did not choose it by ALPN.
	HTTP2WithoutALPN bool
}

// PoolMode is how requests share the connections to a host, if the protocol can multiplex. Other
// protocols use PingPong, or Bind if the mode is Bind and ProxyProtocol or BindAll is set.
type PoolMode string

// The pool modes.
const (
	Multiplex PoolMode = "multiplex" // many requests on few connections; "" means the same
	PingPong  PoolMode = "ping_pong" // one request at a time on each connection
	// Bind: separate upstream connections for each downstream connection; one if the protocol
	// multiplexes.
	Bind PoolMode = "bind"
)

// Pool configures the connections to each host.
type Pool struct {
	Mode PoolMode
	// BindAll applies the mode Bind to protocols that do not multiplex, too. config.json has no key for
	// it.
	BindAll bool
	// Connections is the maximum number of connections in a pool with Multiplex; default 1. A host
	// has one pool for each protocol and Priority, and with AutoSNI one for each host name. A pool
	// exceeds the maximum if the stream limits of the host require more connections.
	Connections int
	// WarmProtocol is the protocol for which Multiplex keeps a connection to each host open before the
	// first request; "": none.
	WarmProtocol Protocol
	MaxFrameSize int // bytes; maximum response frame of a framed RPC protocol; default 8 MiB
	// MaxRequests is the maximum number of requests on a multiplexed HTTP/2 connection. The
	// connection then takes no more requests and closes after the last one; 0: no limit (default).
	MaxRequests    int
	MaxRPCRequests int // MaxRequests for RPC protocols
	// MaxConnecting is the maximum number of concurrent connects to a host for the requests of one
	// priority in one protocol; 0: DefaultMaxConnecting.
	MaxConnecting int
	// MaxPendingBytes is the maximum of pending bytes on a connection of a framed RPC protocol whose
	// host does not read; 0: the default of RPCOptions.
	MaxPendingBytes int
}

// DefaultMaxConnecting is lower than the default backlog of a listener (net.core.somaxconn: 128
// before Linux 5.4, 4,096 since), so that one proxy does not fill it.
const DefaultMaxConnecting = 64

// ConnectLimit returns MaxConnecting, or its default.
func (p *Pool) ConnectLimit() int {
	if p.MaxConnecting > 0 {
		return p.MaxConnecting
	}
	return DefaultMaxConnecting
}

// Heartbeat configures the heartbeats on upstream connections of protocols that have them.
type Heartbeat struct {
	// Interval is the idle time of a connection before Weft sends a heartbeat; default 15 s; 0: no
	// heartbeats.
	Interval time.Duration
	// Timeout is the time from the first heartbeat without a response to the close of the
	// connection, rounded up to a multiple of Interval for RPC protocols; default 90 s.
	Timeout time.Duration
}

// Priority selects the limits of a cluster that apply to a request. It does not order requests.
type Priority uint8

// The priorities.
const (
	DefaultPriority Priority = iota
	HighPriority

	NumPriorities // number of priorities
)

// String returns the configuration name of the priority.
func (p Priority) String() string {
	if p == HighPriority {
		return "HIGH"
	}
	return "DEFAULT"
}

// Limits returns the limits for requests of a priority.
func (c *Cluster) Limits(p Priority) *CircuitBreakers {
	if p == HighPriority {
		return &c.HighCircuitBreakers
	}
	return &c.CircuitBreakers
}

// CircuitBreakers are the limits of a cluster for one priority. 0 means no limit, and
// LimitNoneAllowed allows nothing. The readers of configuration formats set DefaultCircuitBreakers
// for an absent value. For an explicit 0 they follow their format: no limit in config.json,
// LimitNoneAllowed in Envoy's. With a RetryBudget, an absent MaxRetries is 0; in Envoy's format,
// MaxRetries is then always 0.
type CircuitBreakers struct {
	MaxConnections     int // open connections
	MaxPendingRequests int // requests that wait for a connection
	MaxRequests        int // requests that have a connection
	MaxRetries         int // retries in flight
	RetryBudget        RetryBudget
}

// The default limits, as in Envoy.
const (
	DefaultMaxConnections     = 1024
	DefaultMaxPendingRequests = 1024
	DefaultMaxRequests        = 1024
	DefaultMaxRetries         = 3
)

// DefaultCircuitBreakers returns the limits of a priority that is not configured.
func DefaultCircuitBreakers() CircuitBreakers {
	return CircuitBreakers{
		MaxConnections: DefaultMaxConnections, MaxPendingRequests: DefaultMaxPendingRequests,
		MaxRequests: DefaultMaxRequests, MaxRetries: DefaultMaxRetries,
	}
}

// LimitNoneAllowed is a limit that allows nothing.
const LimitNoneAllowed = -1

// RetryBudget limits the retries of a cluster in proportion to its requests in flight, so that
// retries do not overload failing hosts. The zero value means no budget.
type RetryBudget struct {
	Percent        float64 // maximum retries in flight, as a percentage of the requests in flight
	MinConcurrency int     // retries that may always be in flight; at least 1 in a budget
}

// Host is one address of a cluster. The address identifies the host: its state (connections,
// requests in flight, health) survives a change of other fields, except NoTLS and TLSIndex. A
// change of these two replaces the host.
type Host struct {
	Address         string // ip:port or unix path; name:port in a DNS cluster
	ResolvedAddress string // address for new connections, if it is not Address: set by discovery, never configured
	Hostname        string // for Host rewriting and TLS; "" for none
	Weight          uint32 // above 0; default 1; at most 128 in config.json
	NoTLS           bool   // plaintext, whatever the cluster configures
	TLSIndex        int    // 0: the cluster's TLS; i above 0: its AlternateTLS[i-1]
	Metadata        map[string]string
	Priority        uint32 // hosts with 0 get requests first; higher numbers if hosts with lower numbers fail
	Locality        Locality
	Health          HostHealth // health that discovery reports
	Workload        string     // workload of the host, as workload.Parse reads it; "": unknown; only a control plane sets it
}
