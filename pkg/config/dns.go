package config

import (
	"slices"
	"time"
)

// The types of clusters whose hosts are found by DNS. In a ClusterStrictDNS each address of a name
// is a separate host. A ClusterLogicalDNS has one host, the name: new connections go to the first
// address of the latest response, and open connections stay.
const (
	ClusterStrictDNS  ClusterType = "STRICT_DNS"
	ClusterLogicalDNS ClusterType = "LOGICAL_DNS"
)

// UsesDNS reports whether the hosts of the type may be DNS names.
func (t ClusterType) UsesDNS() bool { return t == ClusterStrictDNS || t == ClusterLogicalDNS }

// DNS configures the resolution of a cluster's names. The zero value of a field means its default.
type DNS struct {
	RefreshRate time.Duration // how long a response is used; default 5 s
	RespectTTL  bool          // use the TTL of the response, between 1 s and 1 h, instead of RefreshRate
	MinTTL      time.Duration // with RespectTTL: lower bound of the TTL, also above 1 h; default 1 s

	// FailureBackoffBase is the wait after a failed lookup. It doubles with each further failure up to
	// FailureBackoffMax. Defaults: 500 ms, and RefreshRate.
	FailureBackoffBase, FailureBackoffMax time.Duration

	// Jitter is the maximum random time added to each wait. Default: each wait is reduced by up to
	// a tenth.
	Jitter time.Duration

	Family string // "AUTO" (default), "V4_ONLY", "V6_ONLY", "V4_PREFERRED", "ALL"

	Resolvers []string      // servers, ip:port; empty: the system's
	Search    []string      // search domains for short names; empty: the system's
	Ndots     int           // with Search: a name with at least this number of dots is first tried without search domains; default 1
	Timeout   time.Duration // for a response of one server; default 3 s with several Resolvers; else 5 s with the families AUTO and V4_PREFERRED, and 10 s with others
	Attempts  int           // per server; default 1
}

// Equal reports whether d and other have the same values.
func (d *DNS) Equal(other *DNS) bool {
	return d.RefreshRate == other.RefreshRate &&
		d.RespectTTL == other.RespectTTL &&
		d.MinTTL == other.MinTTL &&
		d.FailureBackoffBase == other.FailureBackoffBase &&
		d.FailureBackoffMax == other.FailureBackoffMax &&
		d.Jitter == other.Jitter &&
		d.Family == other.Family &&
		slices.Equal(d.Resolvers, other.Resolvers) &&
		slices.Equal(d.Search, other.Search) &&
		d.Ndots == other.Ndots &&
		d.Timeout == other.Timeout &&
		d.Attempts == other.Attempts
}
