package protocol

import "iter"

// Reason says why Weft sent a local reply for an exchange, or ended it. The set is closed;
// docs/errors.md is generated from its table.
type Reason uint8

// The reasons. Their order is not part of any contract; their names are.
const (
	ReasonNone Reason = iota

	// The request was not acceptable.
	MalformedRequest
	TargetTooLong
	HeaderTooLarge
	BodyTooLarge
	RequestTimeout
	RequestIdle
	VersionNotSupported
	NotImplemented
	ExpectationFailed

	// The configuration has no destination.
	ReasonNoRoute
	NoCluster
	ReasonOnDemandTimeout
	NoDestination
	MalformedDestination
	ReasonLoop

	// A filter rejected the request.
	ReasonDenied
	Unauthenticated
	RateLimited
	FaultInjected

	// The upstream could not be used.
	NoHealthyHost
	ConnectFailure
	ConnectTimeout
	Overflow
	RetryOverflow
	Dropped

	// The upstream was used and it failed.
	UpstreamReset
	UpstreamClosed
	UpstreamMalformed
	UpstreamTimeout
	ReasonPerTryTimeout
	StreamIdle

	// The exchange ended on the downstream side or in Weft.
	ReasonDownstreamDisconnect
	Draining
	Overloaded
	Internal

	reasonCount
)

// ReasonSpec is a row of the Reason table: it defines a reason in the terms of each protocol.
type ReasonSpec struct {
	Name  string // stable identifier: metrics label, documentation
	Flag  string // access log (%response_flag%), Envoy's short names
	HTTP  int    // status of the local reply
	GRPC  int    // grpc-status of the local reply
	Dubbo byte   // status of the response frame
	Bolt  uint16 // status of the response frame
	// SafeToRetry: the request cannot have reached an application, so that even a request that is
	// not idempotent may be retried.
	SafeToRetry bool
	Text        string // for logs, and the body of the local reply
	Hint        string // how to resolve it, for docs/errors.md
}

//nolint:gochecknoglobals // a constant table
var traits = [reasonCount]ReasonSpec{
	ReasonNone: {Name: "none", Flag: "-", HTTP: 200, Dubbo: 20, Text: "ok",
		Hint: "Nothing went wrong."},

	MalformedRequest: {Name: "malformed_request", Flag: "DPE", HTTP: 400, GRPC: 13, Dubbo: 40, Bolt: 9, Text: "malformed request",
		Hint: "The client broke its protocol; the detail says where. The connection is closed."},
	TargetTooLong: {Name: "target_too_long", Flag: "DPE", HTTP: 414, GRPC: 13, Dubbo: 40, Bolt: 9, Text: "request target too long",
		Hint: "Raise max_request_line_size of the listener's proxy filter, or shorten the URL."},
	HeaderTooLarge: {Name: "header_too_large", Flag: "DPE", HTTP: 431, GRPC: 8, Dubbo: 40, Bolt: 9, Text: "request header too large",
		Hint: "Raise max_header_size or max_header_count, or look for a cookie that grows."},
	BodyTooLarge: {Name: "body_too_large", Flag: "DPE", HTTP: 413, GRPC: 8, Dubbo: 40, Bolt: 9, Text: "request body too large",
		Hint: "Raise max_request_body_size, or the payload_limit filter's limit."},
	RequestTimeout: {Name: "request_timeout", Flag: "DT", HTTP: 408, GRPC: 4, Dubbo: 30, Bolt: 7, Text: "request not received in time",
		Hint: "The client was too slow in sending its head or body."},
	RequestIdle: {Name: "request_idle", Flag: "SI", HTTP: 408, GRPC: 4, Dubbo: 30, Bolt: 7, Text: "request idle for too long",
		Hint: "The listener's stream_idle_timeout, or http2_stream_idle_timeout, passed while the client sent nothing of its request and the host nothing of an answer."},
	VersionNotSupported: {Name: "version_not_supported", Flag: "DPE", HTTP: 505, GRPC: 12, Dubbo: 40, Bolt: 9, Text: "protocol version not supported",
		Hint: "The request line names a version other than HTTP/1.0 and HTTP/1.1."},
	NotImplemented: {Name: "not_implemented", Flag: "DPE", HTTP: 501, GRPC: 12, Dubbo: 40, Bolt: 9, Text: "not implemented",
		Hint: "The request uses a transfer coding that Weft does not know, or its route speaks another protocol upstream than its caller, or answers a call of RPC as only HTTP can; or it asks to switch to another protocol, as WebSocket does, and its host does not: one of HTTP/2 must allow extended CONNECT (RFC 8441)."},
	ExpectationFailed: {Name: "expectation_failed", Flag: "DPE", HTTP: 417, GRPC: 9, Dubbo: 40, Bolt: 9, Text: "expectation not supported",
		Hint: "The only expectation that HTTP defines is 100-continue."},

	ReasonNoRoute: {Name: "no_route", Flag: "NR", HTTP: 404, GRPC: 12, Dubbo: 60, Bolt: 6, Text: "no route matched",
		Hint: "No virtual host or route of the listener's route table matches; look at /routes."},
	NoCluster: {Name: "no_cluster", Flag: "NC", HTTP: 404, GRPC: 12, Dubbo: 60, Bolt: 6, Text: "no such cluster",
		Hint: "The route names a cluster that is not configured; look at /clusters."},
	ReasonOnDemandTimeout: {Name: "not_supplied", Flag: "NC", HTTP: 503, GRPC: 14, Dubbo: 60, Bolt: 6, SafeToRetry: true, Text: "not supplied in time",
		Hint: "With xds_lazy, the control plane is asked for hosts, and routes, when they are first used: it has not sent them within xds_lazy.wait; weft xds-status tells why."},
	NoDestination: {Name: "no_destination", Flag: "UH", HTTP: 502, GRPC: 14, Dubbo: 60, Bolt: 6, SafeToRetry: true, Text: "original destination unknown",
		Hint: "The cluster is of type ORIGINAL_DST, and the connection was not redirected: its caller has connected to the listener itself, or the listener does not say use_original_dst."},
	MalformedDestination: {Name: "malformed_destination", Flag: "DPE", HTTP: 400, GRPC: 3, Dubbo: 40, Bolt: 9, Text: "malformed original destination",
		Hint: "The field that original_dst_lb_config names does not hold ip:port."},
	ReasonLoop: {Name: "loop", Flag: "UH", HTTP: 508, GRPC: 9, Dubbo: 80, Bolt: 3, Text: "the connection is Weft's own",
		Hint: "What Weft sends to an original destination comes back to it: a rule of the kernel redirects Weft's own connections, which should be left out by their user or mark."},

	ReasonDenied: {Name: "denied", Flag: "-", HTTP: 403, GRPC: 7, Dubbo: 70, Bolt: 2, Text: "denied",
		Hint: "A filter refused the request."},
	Unauthenticated: {Name: "unauthenticated", Flag: "-", HTTP: 401, GRPC: 16, Dubbo: 70, Bolt: 2, Text: "not authenticated",
		Hint: "A filter wants credentials that the request does not carry."},
	RateLimited: {Name: "rate_limited", Flag: "RL", HTTP: 509, GRPC: 14, Dubbo: 100, Bolt: 4, SafeToRetry: true, Text: "rate limited",
		Hint: "A limit of the route or client is reached; the answer may say when to come back. The filter decides the HTTP status: flowControlFilter answers 509 unless its action.status says otherwise, local_ratelimit 429 unless its status does, ext_authz 429 as its service does."},
	FaultInjected: {Name: "fault_injected", Flag: "FI", HTTP: 503, GRPC: 14, Dubbo: 80, Bolt: 3, Text: "fault injected",
		Hint: "The fault filter is configured to do this."},

	NoHealthyHost: {Name: "no_healthy_host", Flag: "UH", HTTP: 502, GRPC: 14, Dubbo: 60, Bolt: 6, SafeToRetry: true, Text: "no healthy host",
		Hint: "The cluster has no host, all are down, or none has the labels that the request brings; look at /clusters."},
	ConnectFailure: {Name: "connect_failure", Flag: "UF", HTTP: 502, GRPC: 14, Dubbo: 60, Bolt: 6, SafeToRetry: true, Text: "upstream connect failed",
		Hint: "Is the application listening on the host's address?"},
	ConnectTimeout: {Name: "connect_timeout", Flag: "UF", HTTP: 502, GRPC: 14, Dubbo: 60, Bolt: 6, SafeToRetry: true, Text: "upstream connect timed out",
		Hint: "The host does not answer within the cluster's connect_timeout: network policy, or a full accept queue."},
	Overflow: {Name: "overflow", Flag: "UO", HTTP: 503, GRPC: 14, Dubbo: 100, Bolt: 4, SafeToRetry: true, Text: "circuit breaker open",
		Hint: "A limit of the cluster's circuit_breakers is reached, or the one that adaptive_concurrency has found."},
	RetryOverflow: {Name: "retry_overflow", Flag: "URX", HTTP: 503, GRPC: 14, Dubbo: 100, Bolt: 4, Text: "retries used up",
		Hint: "The route's num_retries or the cluster's max_retries is reached."},

	Dropped: {Name: "dropped", Flag: "DO", HTTP: 503, GRPC: 14, Dubbo: 100, Bolt: 4, SafeToRetry: true, Text: "dropped to shed load",
		Hint: "Who tells of the cluster's hosts says that a share of its requests is to be dropped, drop_overloads; /clusters tells how many were, by category."},

	UpstreamReset: {Name: "upstream_reset", Flag: "UR", HTTP: 502, GRPC: 14, Dubbo: 80, Bolt: 16, Text: "upstream reset the connection",
		Hint: "The application, or something before it, reset the connection while it was answering."},
	UpstreamClosed: {Name: "upstream_closed", Flag: "UC", HTTP: 502, GRPC: 14, Dubbo: 35, Bolt: 16, Text: "upstream closed the connection",
		Hint: "The application closed the connection before its answer was whole; a keep-alive shorter than the cluster's idle_timeout does this."},
	UpstreamMalformed: {Name: "upstream_malformed", Flag: "UPE", HTTP: 502, GRPC: 13, Dubbo: 50, Bolt: 9, Text: "malformed upstream answer",
		Hint: "The application broke its protocol; the detail says where."},
	UpstreamTimeout: {Name: "upstream_timeout", Flag: "UT", HTTP: 504, GRPC: 14, Dubbo: 30, Bolt: 7, Text: "upstream timed out",
		Hint: "The route's timeout passed without a whole answer."},
	ReasonPerTryTimeout: {Name: "try_timeout", Flag: "UT", HTTP: 504, GRPC: 14, Dubbo: 30, Bolt: 7, Text: "upstream try timed out",
		Hint: "The retry policy's retry_timeout passed without an answer."},
	StreamIdle: {Name: "stream_idle", Flag: "SI", HTTP: 504, GRPC: 14, Dubbo: 30, Bolt: 7, Text: "upstream idle for too long",
		Hint: "The listener's stream_idle_timeout, or http2_stream_idle_timeout, passed without a byte of the answer, or of a tunnel in either direction."},

	ReasonDownstreamDisconnect: {Name: "downstream_gone", Flag: "DC", HTTP: 499, GRPC: 1, Dubbo: 30, Bolt: 8, Text: "client gone",
		Hint: "The client closed its connection before the answer was written. Nobody sees this status but the log."},
	Draining: {Name: "draining", Flag: "SD", HTTP: 503, GRPC: 14, Dubbo: 100, Bolt: 4, SafeToRetry: true, Text: "shutting down",
		Hint: "Weft is draining."},
	Overloaded: {Name: "overloaded", Flag: "OM", HTTP: 503, GRPC: 14, Dubbo: 100, Bolt: 4, SafeToRetry: true, Text: "overloaded",
		Hint: "Weft is short of something, and overload_manager says that it refuses requests then; /overload tells of what."},
	Internal: {Name: "internal", Flag: "IE", HTTP: 500, GRPC: 13, Dubbo: 80, Bolt: 3, Text: "internal error",
		Hint: "A defect of Weft or of a filter: the log has the stack."},
}

// Traits returns r's row of the table.
func (r Reason) Traits() *ReasonSpec { return &traits[r] }

func (r Reason) String() string { return traits[r].Name }

// Text returns a short description of r.
func (r Reason) Text() string { return traits[r].Text }

// Reasons yields every reason but ReasonNone, in the table's order.
func Reasons() iter.Seq[Reason] {
	return func(yield func(Reason) bool) {
		for r := ReasonNone + 1; r < reasonCount; r++ {
			if !yield(r) {
				return
			}
		}
	}
}
