package config

import "time"

// ProxyProtocol is the listener filter of that name: what connections to a listener
// begin with.
type ProxyProtocol struct {
	// AllowMissing: connections that begin with something else are served as they are.
	AllowMissing bool
	// Disallowed are the versions, 1 and 2, of headers that are taken for something
	// else.
	Disallowed []int
	// Timeout is from when the connection was accepted until its header is there;
	// default 15 s.
	Timeout time.Duration
}
