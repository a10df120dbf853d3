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

// EnvoyHeaders are the rules by which Envoy's HTTP connection manager accepts, removes and adds
// headers. A request is internal if X-Forwarded-For, including an appended client address, is a
// single address in InternalRanges. A request that is not internal is an edge request if
// UseRemoteAddress is set.
type EnvoyHeaders struct {
	UseRemoteAddress   bool           // use_remote_address: requests that are not internal come from external clients
	InternalRanges     []netip.Prefix // internal_address_config.cidr_ranges
	InternalUnixSocket bool           // internal_address_config.unix_sockets: clients on unix sockets are internal

	// Detection finds the client address, the first that finds one; otherwise it is the address of
	// the connection. Empty: HTTP1Options.XFFClientIndex applies. It is empty if UseRemoteAddress is
	// set.
	Detection []ClientDetection
	// EarlyMutations change the headers of requests before all other rules, in order.
	EarlyMutations []HeaderMutation

	RequestID RequestID
	Server    ServerHeaderMode // the value is HTTP1Options.ServerName

	// ForwardedPort adds X-Forwarded-Port with the port of the listener. It replaces the header of
	// clients that are not trusted, as X-Forwarded-Proto.
	ForwardedPort bool
	// Scheme replaces the scheme of requests and their X-Forwarded-Proto; "" keeps them.
	Scheme string
	// UserAgent is the value of X-Envoy-Downstream-Service-Cluster, and of User-Agent if that is
	// missing; NodeID is the value of X-Envoy-Downstream-Service-Node. "" does not set them.
	UserAgent, NodeID string
}

// ClientDetection is one way to find the address of the client in a request.
type ClientDetection struct {
	// Header is the name of a header whose value is the address; "": X-Forwarded-For.
	Header string
	// Internal allows requests to be internal if their address in Header is in InternalRanges.
	Internal bool
	// RejectStatus is the status of the response to requests without an address in Header; 0: they are
	// not rejected.
	RejectStatus int

	// For X-Forwarded-For.
	TrustedHops   int            // entries at the end that trusted proxies have appended
	TrustedRanges []netip.Prefix // addresses of trusted proxies: the client is the last entry that is not in them; empty: TrustedHops applies
	Append        bool           // append the address of the connection, also if it is in TrustedRanges; other addresses are always appended
}

// RequestID says how requests and responses get the header x-request-id.
type RequestID struct {
	Generate bool // add a random UUID to requests without an ID
	Replace  bool // with Generate: replace the IDs of edge requests
	// ResetTraceReason resets, in the IDs of edge requests that are not replaced, the digit in which
	// Envoy stores why a request is traced.
	ResetTraceReason bool
	InResponse       bool // copy the ID to the response; the request header x-envoy-force-trace has the same effect
}

// ServerHeaderMode says how responses get the header Server.
type ServerHeaderMode uint8

// The modes.
const (
	ServerKeep      ServerHeaderMode = iota // as the upstream sent it; local replies have HTTP1Options.ServerName
	ServerOverwrite                         // HTTP1Options.ServerName replaces it
	ServerAdd                               // HTTP1Options.ServerName is added if it is missing
)

// RouterHeaders are the headers by which Envoy's router filter informs upstreams and clients, and
// those by which internal clients control it. The control headers override the timeouts and the
// retry policy of the route for one request, and are not forwarded:
//
//	x-envoy-upstream-rq-timeout-ms, x-envoy-upstream-rq-per-try-timeout-ms,
//	x-envoy-max-retries, x-envoy-retry-on, x-envoy-retry-grpc-on,
//	x-envoy-retriable-status-codes, x-envoy-retriable-header-names,
//	x-envoy-hedge-on-per-try-timeout, x-envoy-upstream-rq-timeout-alt-response
type RouterHeaders struct {
	// Suppress omits x-envoy-expected-rq-timeout-ms, x-envoy-original-path and x-envoy-original-host in
	// requests, and x-envoy-upstream-service-time and x-envoy-overloaded in responses.
	Suppress bool
	// RespectExpectedTimeout lets x-envoy-expected-rq-timeout-ms of a request override the timeout of
	// the route. x-envoy-upstream-rq-timeout-ms then has no effect.
	RespectExpectedTimeout bool
	// StrictChecks are the names of control headers, in lower case. A request is rejected if the
	// value of one of them is invalid.
	StrictChecks []string
}

// StrictlyCheckedHeaders returns the names that StrictChecks may contain, as Envoy allows.
func StrictlyCheckedHeaders() []string {
	return []string{
		"x-envoy-upstream-rq-timeout-ms", "x-envoy-upstream-rq-per-try-timeout-ms",
		"x-envoy-max-retries", "x-envoy-retry-on", "x-envoy-retry-grpc-on",
	}
}

// AttemptHeaders says which headers describe the attempts of a request.
type AttemptHeaders struct {
	CountInRequest  bool // x-envoy-attempt-count in requests to hosts
	CountInResponse bool // x-envoy-attempt-count in responses
	TimeoutRetry    bool // x-envoy-is-timeout-retry in retries
}
