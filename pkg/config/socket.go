package config

import "time"

// Socket is how the sockets of connections to a cluster's hosts are set. The zero
// value leaves everything to the system.
type Socket struct {
	// Source4 and Source6 are the IP addresses that connections to hosts of IPv4 and of
	// IPv6 come from; "": the system chooses.
	Source4, Source6 string
	// Port4 and Port6 are the ports that they come from; 0: any. There can be one connection
	// to each address of a host then.
	Port4, Port6 uint16
	KeepAlive    TCPKeepAlive
}

// TCPKeepAlive is how a peer of TCP that is silent is asked whether it lives. The zero
// value is the default: towards hosts after 15 s, nine times, 15 s apart; towards
// callers never.
type TCPKeepAlive struct {
	Enabled  bool
	Idle     time.Duration // of silence before the first probe, in whole seconds; 0: the system's
	Interval time.Duration // between two probes, in whole seconds; 0: the system's
	Probes   int           // without an answer after which the connection is given up; 0: the system's
}
