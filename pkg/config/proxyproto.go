package config

import "time"

// ProxyProtocol configures the listener filter that reads the PROXY protocol header at the start of
// each connection.
type ProxyProtocol struct {
	// AllowMissing accepts connections without a PROXY protocol header.
	AllowMissing bool
	// DisallowedVersions are the versions, 1 or 2, that the listener does not accept.
	DisallowedVersions []int
	// Timeout bounds the time from accepting the connection to receiving the complete header; default
	// 15 s.
	Timeout time.Duration
}
