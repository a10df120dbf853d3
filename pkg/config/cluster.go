package config

import "time"

// ClusterType is where a cluster's hosts come from.
type ClusterType string

// The types.
const (
	ClusterStatic    ClusterType = "STATIC" // SIMPLE means the same
	ClusterStrictDNS ClusterType = "STRICT_DNS"
)

// Policy is a load-balancing policy.
type Policy string

// The policies that are built.
const (
	RoundRobin         Policy = "LB_ROUNDROBIN"
	WeightedRoundRobin Policy = "LB_WEIGHTED_ROUNDROBIN"
	Random             Policy = "LB_RANDOM"
	LeastRequest       Policy = "LB_LEAST_REQUEST"
)

// Cluster is a set of hosts that answer the same requests.
type Cluster struct {
	Name   string
	Type   ClusterType
	Policy Policy

	ChoiceCount       int     // hosts compared by least request; default 2
	ActiveRequestBias float64 // exponent of least request with weights; default 1

	ConnectTimeout     time.Duration // default 10 s
	IdleTimeout        time.Duration // of a pooled connection; default 60 s
	MaxRequestsPerConn int           // then the connection is closed; 0: no limit; default 1024
	Breakers           Breakers
	Hosts              []Host
	DNS                DNS
}

// Breakers are a cluster's limits; 0 means no limit, the default.
type Breakers struct {
	MaxConnections     int // connections open
	MaxPendingRequests int // requests that wait for a connection
	MaxRequests        int // requests in flight
	MaxRetries         int // retries in flight
}

// Host is one address of a cluster. Its identity is the address: its state
// (connections, in-flight count, health) outlives a change of the rest.
type Host struct {
	Address  string // ip:port or unix path; name:port in a DNS cluster
	Hostname string // for Host rewriting and TLS; "" for none
	Weight   uint32 // 1 … 128; default 1
	Metadata map[string]string
}

// DNS is how names are resolved.
type DNS struct {
	RefreshRate time.Duration // default 5 s
	RespectTTL  bool
	Family      string   // "AUTO", "V4_ONLY", "V6_ONLY"
	Resolvers   []string // ip:port; empty: the system's
}
