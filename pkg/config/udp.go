package config

import "time"

// UDPProxy is the network filter of a UDP listener: it forwards the datagrams of a source to one
// host of a cluster and the datagrams of that host back to the source.
type UDPProxy struct {
	Cluster      string
	IdleTimeout  time.Duration // of a session without a datagram in either direction; default 60 s
	MaxSessions  int           // concurrent sessions; datagrams of other sources are dropped; default 10,000
	HashSourceIP bool          // the source IP is the hash input of the cluster's load balancing
}
