package config

import (
	"slices"
	"time"
)

// The types of clusters whose hosts are found by resolving names. In
// ClusterStrictDNS each address of a name is a host of its own. ClusterLogicalDNS
// has one host, the name: new connections go to the first address of the newest
// answer, and those that are open stay.
const (
	ClusterStrictDNS  ClusterType = "STRICT_DNS"
	ClusterLogicalDNS ClusterType = "LOGICAL_DNS"
)

// Resolves reports whether hosts of the type may be names.
func (t ClusterType) Resolves() bool { return t == ClusterStrictDNS || t == ClusterLogicalDNS }

// DNS is how the names of a cluster are resolved. The zero value of a field is its
// default.
type DNS struct {
	RefreshRate time.Duration // how long an answer is used; default 5 s
	RespectTTL  bool          // the answer itself says so, within a second and an hour

	// After a failure a name is resolved again when FailureBase has passed, then
	// twice as long each time, up to FailureMax. Default: 500 ms, up to RefreshRate.
	FailureBase, FailureMax time.Duration

	// Jitter: each wait is longer by up to so much. Default: shorter by up to a
	// tenth.
	Jitter time.Duration

	Family string // "AUTO" (default), "V4_ONLY", "V6_ONLY", "V4_PREFERRED", "ALL"

	Resolvers []string      // servers, ip:port; empty: the system's
	Search    []string      // domains that short names are completed with; empty: the system's
	Ndots     int           // dots that a name needs to be tried as it stands first; with Search; default 1
	Timeout   time.Duration // for an answer of one server; default 3 s if there are several, else 10 s
	Attempts  int           // times that each server is asked; default 1
}

// Equal reports whether d and other mean the same.
func (d *DNS) Equal(other *DNS) bool {
	return d.RefreshRate == other.RefreshRate &&
		d.RespectTTL == other.RespectTTL &&
		d.FailureBase == other.FailureBase &&
		d.FailureMax == other.FailureMax &&
		d.Jitter == other.Jitter &&
		d.Family == other.Family &&
		slices.Equal(d.Resolvers, other.Resolvers) &&
		slices.Equal(d.Search, other.Search) &&
		d.Ndots == other.Ndots &&
		d.Timeout == other.Timeout &&
		d.Attempts == other.Attempts
}
