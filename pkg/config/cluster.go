package config

import "time"

// ClusterType is where a cluster's hosts come from.
type ClusterType string

// The types.
const (
	ClusterStatic ClusterType = "STATIC" // SIMPLE means the same
)

// Policy is a load-balancing policy.
type Policy string

// The policies that are built.
const (
	RoundRobin         Policy = "LB_ROUNDROBIN"
	WeightedRoundRobin Policy = "LB_WEIGHTED_ROUNDROBIN"
	Random             Policy = "LB_RANDOM"
	LeastRequest       Policy = "LB_LEAST_REQUEST"
	LeastConnection    Policy = "LB_LEAST_CONNECTION"
	PeakEWMA           Policy = "LB_PEAK_EWMA"
	RingHash           Policy = "LB_RINGHASH"
	Maglev             Policy = "LB_MAGLEV"
	RequestRoundRobin  Policy = "LB_REQUEST_ROUNDROBIN"
)

// Hashes reports whether the policy goes by the hash that exchanges bring.
func (p Policy) Hashes() bool { return p == RingHash || p == Maglev }

// Cluster is a set of hosts that answer the same requests.
type Cluster struct {
	Name   string
	Type   ClusterType
	Policy Policy
	// Protocol is what the hosts speak, if the route does not say; "": as the proxy says;
	// Auto: what the caller speaks, whatever the proxy says.
	Protocol Protocol
	// GRPCInHTTP1: calls of gRPC from callers of HTTP/2 are sent to hosts that are spoken to
	// in HTTP/1.1, as Envoy does: such a host is one that translates them. Otherwise they
	// are refused.
	GRPCInHTTP1 bool

	ChoiceCount       int     // hosts compared by least request, least connection and peak EWMA; default 2
	ActiveRequestBias float64 // exponent of least request with weights; default 1
	MinRingSize       int     // points of ring hash; 0: as many as are good for the shares
	MaxRingSize       int     // 0 means 8,388,608
	TableSize         int     // places of maglev, a prime; 0: 65,537, or 655,373 for many hosts

	Subsets    Subsets
	Rules      HostRules // of what requests say; nil: none; never configured
	SlowStart  SlowStart
	Failover   Failover
	Localities []LocalityWeight // of the localities that get work; empty: localities do not count

	ConnectTimeout     time.Duration // default 10 s
	IdleTimeout        time.Duration // of a pooled connection; default 60 s
	MaxRequestsPerConn int           // of a connection that carries one at a time: then it is closed; 0: no limit; default 1024; Pool has that of others
	Pool               Pool
	KeepAlive          KeepAlive
	Breakers           Breakers // of exchanges of the default priority
	HighBreakers       Breakers // of those of the high one
	TLS                *TLS     // towards the hosts; nil: plaintext
	MoreTLS            []*TLS   // towards those that say so by Host.TLS; never configured
	RequestName        RequestName
	ProxyProtocol      int // version of the header that connections begin with, 1 or 2, each for one caller; 0: none
	Mark               int // of sockets to the hosts, for rules of the kernel (SO_MARK); 0: none
	OriginalDst        OriginalDst
	Socket             Socket
	Hosts              []Host
	Drops              []Drop // what is refused on purpose, one after the other; never configured
	DNS                DNS
	Health             *HealthCheck // nil: no active checks
	Outlier            *Outlier     // nil: no passive ones
	Mesh               Mesh
	OnDemand           OnDemand // of Hosts; never configured
}

// PoolMode is how exchanges share the connections to a host, if the protocol
// lets a connection carry many at once. Other protocols know one way only.
type PoolMode string

// The modes.
const (
	Multiplex PoolMode = "multiplex" // many exchanges on few connections; "" means the same
	PingPong  PoolMode = "ping_pong" // one exchange at a time on each
	Bind      PoolMode = "bind"      // a connection for each downstream connection
)

// Pool is how many connections to a host there are, and how they are used.
type Pool struct {
	Mode        PoolMode
	Connections int // to each host, of Multiplex; default 1
	// Warm is a protocol in which Multiplex keeps a connection to each host open ahead
	// of requests; "": none.
	Warm         Protocol
	MaxFrameSize int // bytes; the largest answer of a framed RPC protocol; default 8 MiB
	// MaxRequests is how many requests may begin on a connection of HTTP/2 that many share:
	// then it takes no more and ends with the last of them; 0: any number (default).
	MaxRequests int
	MaxCalls    int // MaxRequests of an RPC protocol
	// MaxConnecting is how many connections to a host may be being opened at once, for the
	// requests of one priority in one protocol; 0: DefaultMaxConnecting.
	MaxConnecting int
	// MaxQueued is how many bytes may wait on a connection of a framed RPC protocol whose host
	// does not read; 0: the default of RPCOptions.
	MaxQueued int
}

// DefaultMaxConnecting is less than the backlog of a listener has by default (net.core.somaxconn:
// 128 before Linux 5.4, 4,096 since), so that one proxy does not fill it.
const DefaultMaxConnecting = 64

// ConnectLimit returns MaxConnecting, or its default.
func (p *Pool) ConnectLimit() int {
	if p.MaxConnecting > 0 {
		return p.MaxConnecting
	}
	return DefaultMaxConnecting
}

// KeepAlive is how a host is asked whether it lives, in protocols that have
// heartbeats.
type KeepAlive struct {
	// Interval is how long a connection may be silent before a heartbeat is sent;
	// default 15 s; 0: none is sent.
	Interval time.Duration
	// Timeout is how long after the first heartbeat that nothing followed the
	// connection is given up, in whole intervals, one at least; default 90 s.
	Timeout time.Duration
}

// Priority says which of a cluster's limits an exchange is held to. It is no order in
// which exchanges are served.
type Priority uint8

// The priorities.
const (
	DefaultPriority Priority = iota
	HighPriority

	Priorities // how many there are
)

// String returns the priority as configuration spells it.
func (p Priority) String() string {
	if p == HighPriority {
		return "HIGH"
	}
	return "DEFAULT"
}

// Limits returns the limits of exchanges of a priority.
func (c *Cluster) Limits(p Priority) *Breakers {
	if p == HighPriority {
		return &c.HighBreakers
	}
	return &c.Breakers
}

// Breakers are a cluster's limits for one priority; 0 means no limit, and Nothing that nothing
// is let through. Readers of configuration set them: DefaultBreakers where nothing is said,
// and what an explicit 0 means there (config.json: no limit; Envoy: Nothing).
type Breakers struct {
	MaxConnections     int // connections open
	MaxPendingRequests int // requests that wait for a connection
	MaxRequests        int // requests that have a connection
	MaxRetries         int // retries in flight
	RetryBudget        RetryBudget
}

// The limits where nothing is said: Envoy's.
const (
	DefaultMaxConnections     = 1024
	DefaultMaxPendingRequests = 1024
	DefaultMaxRequests        = 1024
	DefaultMaxRetries         = 3
)

// DefaultBreakers returns the limits of a priority for which nothing is said.
func DefaultBreakers() Breakers {
	return Breakers{
		MaxConnections: DefaultMaxConnections, MaxPendingRequests: DefaultMaxPendingRequests,
		MaxRequests: DefaultMaxRequests, MaxRetries: DefaultMaxRetries,
	}
}

// Nothing is the limit that is always reached.
const Nothing = -1

// RetryBudget bounds the retries of a cluster by the requests that it has, so that
// retries do not add to the load of hosts that fail. The zero value: not at all.
type RetryBudget struct {
	Percent        float64 // retries in flight, of the requests in flight
	MinConcurrency int     // retries that may be in flight however few those are; 1 at least in a budget
}

// Host is one address of a cluster. Its identity is the address: its state
// (connections, in-flight count, health) outlives a change of the rest.
type Host struct {
	Address  string // ip:port or unix path; name:port in a DNS cluster
	Target   string // where connections go now, if not to Address: found by discovery, never configured
	Hostname string // for Host rewriting and TLS; "" for none
	Weight   uint32 // 1 … 128; default 1
	NoTLS    bool   // plaintext, whatever the cluster says
	TLS      int    // 0: the cluster's TLS; i above 0: its MoreTLS[i-1]
	Metadata map[string]string
	Priority uint32 // 0 is used first; others as those before them fail
	Locality Locality
	Health   HostHealth // what who found the host says; never configured
	Workload string     // that answers there, as workload.Parse reads it; "": not known; never configured
}
