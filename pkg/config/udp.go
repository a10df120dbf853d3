package config

import "time"

// UDPProxy is the network filter of a listener of datagrams: what a source sends goes
// to one host of a cluster, and what that sends goes back.
type UDPProxy struct {
	Cluster     string
	IdleTimeout time.Duration // of a session, without a datagram either way; default 60 s
	MaxSessions int           // at a time; datagrams of other sources are dropped; default 10,000
	HashSource  bool          // the hash that a cluster may choose its hosts by is that of the source's IP
}
