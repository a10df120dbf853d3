package config

import "net/netip"

// ClientHeaders says which request headers a proxy accepts from clients. It concerns headers that
// control the proxy or its upstreams, and headers with facts that only a proxy can know. Weft
// removes a rejected header before filters and routes read the request. The zero value removes the
// headers that OverrideTimeouts describes and passes Envoy's headers on unchanged.
type ClientHeaders struct {
	// OverrideTimeouts lets the headers or RPC attachments x-mosn-global-timeout and
	// x-mosn-try-timeout override the timeouts of routes. Otherwise Weft removes them. It must be
	// false for listeners with external clients.
	OverrideTimeouts bool
	// Envoy holds the rules of Envoy's HTTP connection manager; nil: they do not apply.
	Envoy *EnvoyHeaders
}

// EnvoyHeaders are the rules by which Envoy's HTTP connection manager accepts x-envoy-* headers and
// x-request-id. A request is internal if X-Forwarded-For, including an appended client address, is
// a single address in InternalRanges.
type EnvoyHeaders struct {
	UseRemoteAddress   bool           // use_remote_address: requests that are not internal come from external clients
	InternalRanges     []netip.Prefix // internal_address_config.cidr_ranges
	InternalUnixSocket bool           // internal_address_config.unix_sockets: clients on unix sockets are internal
	// ReplaceRequestID replaces the x-request-id of external clients at the edge
	// (generate_request_id without preserve_external_request_id).
	ReplaceRequestID bool
}
