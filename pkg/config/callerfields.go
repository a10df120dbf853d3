package config

import "net/netip"

// CallerFields says which fields a proxy accepts from its callers: fields that steer the
// proxy or its upstreams, and fields that state what only a proxy can know. A field that
// is not accepted is removed before filters and routes see the request. The reader of a
// configuration sets it by the rules of the format; the zero value accepts no override
// and passes the fields of Envoy unchanged.
type CallerFields struct {
	// OverrideTimeouts: x-mosn-global-timeout and x-mosn-try-timeout, of RPC the
	// attachments of these names, override the timeouts of routes. Otherwise they are
	// removed. Never set for a listener that serves callers from outside.
	OverrideTimeouts bool
	// Envoy applies the rules of Envoy's HTTP connection manager; nil: they do not apply.
	Envoy *EnvoyFields
}

// EnvoyFields are the rules by which Envoy's HTTP connection manager accepts x-envoy-*
// fields and x-request-id. A request is internal if X-Forwarded-For, with the address of
// the caller if that is appended, is a single address, and that is in Internal.
type EnvoyFields struct {
	Edge               bool           // use_remote_address: requests that are not internal come from clients
	Internal           []netip.Prefix // internal_address_config.cidr_ranges
	InternalUnixSocket bool           // internal_address_config.unix_sockets: callers on unix sockets are internal
	// ReplaceRequestID: an x-request-id that a client sent is replaced by a new one, at the
	// edge (generate_request_id without preserve_external_request_id).
	ReplaceRequestID bool
}
