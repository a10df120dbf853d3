package config

import "time"

// Socket holds the options of the sockets to a cluster's hosts. The zero value keeps the defaults
// of the system.
type Socket struct {
	// SourceIPv4 and SourceIPv6 are the source IP addresses of connections to IPv4 and IPv6 hosts;
	// "": the system chooses.
	SourceIPv4, SourceIPv6 string
	// SourcePortIPv4 and SourcePortIPv6 are the source ports; 0: any. With a fixed port only one
	// connection to each host address is possible.
	SourcePortIPv4, SourcePortIPv6 uint16
	KeepAlive                      TCPKeepAlive
}

// TCPKeepAlive configures the TCP keepalive probes of idle connections. The zero value means the
// default: for hosts 9 probes after 15 s, 15 s apart; for clients none.
type TCPKeepAlive struct {
	Enabled  bool
	Idle     time.Duration // idle time before the first probe, in whole seconds; 0: the system default
	Interval time.Duration // between two probes, in whole seconds; 0: the system default
	Probes   int           // unanswered probes before the connection is closed; 0: the system default
}
