package protocol

import "iter"

// Reason is the reason why Weft sent a local reply for an exchange, or ended it. docs/errors.md is
// generated from the table of all reasons.
type Reason uint8

// Reasons. Their names are stable, their order is not.
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

// ReasonSpec is a row of the table of reasons: it defines how each protocol expresses a reason.
type ReasonSpec struct {
	Name  string // stable identifier: metrics label, documentation
	Flag  string // access log (%response_flag%); Envoy's short name if Envoy has one
	HTTP  int    // status of the local reply
	GRPC  int    // grpc-status of the local reply
	Dubbo byte   // status of the response frame
	Bolt  uint16 // status of the response frame
	// SafeToRetry: the request cannot have reached an application, so even a non-idempotent request
	// may be retried.
	SafeToRetry bool
	Text        string // for logs, and the body of the local reply
	Hint        string // how to resolve it, for docs/errors.md
}

//nolint:gochecknoglobals // a constant table
var reasonSpecs = [reasonCount]ReasonSpec{
	ReasonNone: {Name: "none", Flag: "-", HTTP: 200, Dubbo: 20, Text: "ok",
		Hint: "Nothing went wrong."},

	MalformedRequest: {Name: "malformed_request", Flag: "DPE", HTTP: 400, GRPC: 13, Dubbo: 40, Bolt: 9, Text: "malformed request",
		Hint: "The client violated its protocol; the detail in the access log says where. With HTTP/1.1, Weft closes the connection."},
	TargetTooLong: {Name: "target_too_long", Flag: "DPE", HTTP: 414, GRPC: 13, Dubbo: 40, Bolt: 9, Text: "request target too long",
		Hint: "Raise max_request_line_size of the listener's proxy filter, or shorten the URL."},
	HeaderTooLarge: {Name: "header_too_large", Flag: "DPE", HTTP: 431, GRPC: 8, Dubbo: 40, Bolt: 9, Text: "request header too large",
		Hint: "Raise max_header_size or max_header_count, or look for a cookie that grows."},
	BodyTooLarge: {Name: "body_too_large", Flag: "DPE", HTTP: 413, GRPC: 8, Dubbo: 40, Bolt: 9, Text: "request body too large",
		Hint: "Raise max_request_body_size, or the payload_limit filter's limit."},
	RequestTimeout: {Name: "request_timeout", Flag: "DT", HTTP: 408, GRPC: 4, Dubbo: 30, Bolt: 7, Text: "request not received in time",
		Hint: "The client sent the head or the body of its request too slowly."},
	RequestIdle: {Name: "request_idle", Flag: "SI", HTTP: 408, GRPC: 4, Dubbo: 30, Bolt: 7, Text: "request idle for too long",
		Hint: "The listener's stream_idle_timeout or http2_stream_idle_timeout expired: the client sent no byte of its request, and the host no byte of a response."},
	VersionNotSupported: {Name: "version_not_supported", Flag: "DPE", HTTP: 505, GRPC: 12, Dubbo: 40, Bolt: 9, Text: "protocol version not supported",
		Hint: "The request has a version other than HTTP/1.x, or it has the version HTTP/1.0 and the listener does not accept that (then with the status 426)."},
	NotImplemented: {Name: "not_implemented", Flag: "DPE", HTTP: 501, GRPC: 12, Dubbo: 40, Bolt: 9, Text: "not implemented",
		Hint: "Check which of these applies:\n\n" +
			"- the method is longer than max_request_line_size;\n" +
			"- the request uses a transfer coding that Weft does not support;\n" +
			"- Weft cannot translate the client's protocol to that of the cluster;\n" +
			"- a route or filter changed a header of an RPC request whose serialization Weft does not know;\n" +
			"- a redirect, or a direct response with a status below 400, applies to an RPC request;\n" +
			"- the request asks to switch protocols, as WebSocket does, and the host does not switch: an HTTP/2 host must allow extended CONNECT (RFC 8441), and Upgrade must then name one protocol;\n" +
			"- an HTTP/2 client asks to switch to HTTP or TLS."},
	ExpectationFailed: {Name: "expectation_failed", Flag: "DPE", HTTP: 417, GRPC: 9, Dubbo: 40, Bolt: 9, Text: "expectation not supported",
		Hint: "The request has an Expect header other than 100-continue, the only expectation that HTTP defines."},

	ReasonNoRoute: {Name: "no_route", Flag: "NR", HTTP: 404, GRPC: 12, Dubbo: 60, Bolt: 6, Text: "no route matched",
		Hint: "No virtual host or route of the listener's route table matches the request. See /routes of the admin port, or run weft explain."},
	NoCluster: {Name: "no_cluster", Flag: "NC", HTTP: 404, GRPC: 12, Dubbo: 60, Bolt: 6, Text: "no such cluster",
		Hint: "The route refers to a cluster that does not exist. See /clusters of the admin port. Routes of a control plane or an Envoy file respond with their cluster_not_found_response_code, by default 503."},
	ReasonOnDemandTimeout: {Name: "not_supplied", Flag: "NC", HTTP: 503, GRPC: 14, Dubbo: 60, Bolt: 6, SafeToRetry: true, Text: "configuration not received in time",
		Hint: "With xds_lazy, Weft requests clusters and route tables from the control plane when a request first needs them. The control plane did not send them within xds_lazy.wait. Run weft xds-status to see why."},
	NoDestination: {Name: "no_destination", Flag: "UH", HTTP: 502, GRPC: 14, Dubbo: 60, Bolt: 6, SafeToRetry: true, Text: "original destination unknown",
		Hint: "The cluster has the type ORIGINAL_DST, but the connection was not redirected: the client connected to the listener directly, or the listener does not set use_original_dst."},
	MalformedDestination: {Name: "malformed_destination", Flag: "DPE", HTTP: 400, GRPC: 3, Dubbo: 40, Bolt: 9, Text: "malformed original destination",
		Hint: "The value of the header that original_dst_lb_config names is not a valid ip:port."},
	ReasonLoop: {Name: "loop", Flag: "UH", HTTP: 508, GRPC: 9, Dubbo: 80, Bolt: 3, Text: "connection loops back to Weft",
		Hint: "The kernel redirected a connection from Weft to an original destination back to Weft. Exclude Weft's connections, by their user or mark, from the redirect rules."},

	ReasonDenied: {Name: "denied", Flag: "-", HTTP: 403, GRPC: 7, Dubbo: 70, Bolt: 2, Text: "denied",
		Hint: "A filter rejected the request, or the request is CONNECT and the listener does not allow it. The detail in the access log has the cause; for CONNECT (status 405) there is none."},
	Unauthenticated: {Name: "unauthenticated", Flag: "-", HTTP: 401, GRPC: 16, Dubbo: 70, Bolt: 2, Text: "not authenticated",
		Hint: "A filter requires valid credentials, which the request does not have."},
	RateLimited: {Name: "rate_limited", Flag: "RL", HTTP: 509, GRPC: 14, Dubbo: 100, Bolt: 4, SafeToRetry: true, Text: "rate limited",
		Hint: "A rate limit is reached. The filter determines the HTTP status: action.status of flowControlFilter (default 509), status of local_ratelimit (default 429), or the 429 of the service of ext_authz."},
	FaultInjected: {Name: "fault_injected", Flag: "FI", HTTP: 503, GRPC: 14, Dubbo: 80, Bolt: 3, Text: "fault injected",
		Hint: "The fault filter is configured to fail this request."},

	NoHealthyHost: {Name: "no_healthy_host", Flag: "UH", HTTP: 502, GRPC: 14, Dubbo: 60, Bolt: 6, SafeToRetry: true, Text: "no healthy host",
		Hint: "The cluster has no host, all its hosts are draining, or all are down and its panic threshold is 0. Or Weft has tried every usable host, the cluster's routing rules exclude all hosts, or no host has the labels that the request requires. See /clusters of the admin port."},
	ConnectFailure: {Name: "connect_failure", Flag: "UF", HTTP: 502, GRPC: 14, Dubbo: 60, Bolt: 6, SafeToRetry: true, Text: "upstream connect failed",
		Hint: "The host refused the connection, or the connect failed in another way. Check that the application listens on the host's address."},
	ConnectTimeout: {Name: "connect_timeout", Flag: "UF", HTTP: 502, GRPC: 14, Dubbo: 60, Bolt: 6, SafeToRetry: true, Text: "upstream connect timed out",
		Hint: "The host did not accept the connection within the cluster's connect_timeout. Check for a network policy that drops packets and for a full accept queue."},
	Overflow: {Name: "overflow", Flag: "UO", HTTP: 503, GRPC: 14, Dubbo: 100, Bolt: 4, SafeToRetry: true, Text: "circuit breaker open",
		Hint: "A limit of the cluster's circuit_breakers is reached, the limit of adaptive_concurrency is reached, or the host does not read what Weft sends (max_queued_bytes). The detail in the access log says which."},
	Dropped: {Name: "dropped", Flag: "DO", HTTP: 503, GRPC: 14, Dubbo: 100, Bolt: 4, SafeToRetry: true, Text: "dropped to shed load",
		Hint: "The control plane asks Weft to drop a fraction of the cluster's requests (drop_overloads). /clusters of the admin port has the number of dropped requests by category."},

	UpstreamReset: {Name: "upstream_reset", Flag: "UR", HTTP: 502, GRPC: 14, Dubbo: 80, Bolt: 16, Text: "upstream reset the connection",
		Hint: "The application, or a device in front of it, reset the connection or the HTTP/2 stream before the response was complete."},
	UpstreamClosed: {Name: "upstream_closed", Flag: "UC", HTTP: 502, GRPC: 14, Dubbo: 35, Bolt: 16, Text: "upstream closed the connection",
		Hint: "The application closed the connection before the response was complete. A typical cause is an idle timeout of the application that is shorter than the cluster's idle_timeout."},
	UpstreamMalformed: {Name: "upstream_malformed", Flag: "UPE", HTTP: 502, GRPC: 13, Dubbo: 50, Bolt: 9, Text: "malformed upstream response",
		Hint: "The application violated its protocol; the detail in the access log says where."},
	UpstreamTimeout: {Name: "upstream_timeout", Flag: "UT", HTTP: 504, GRPC: 14, Dubbo: 30, Bolt: 7, Text: "upstream timed out",
		Hint: "The route's timeout expired before the response was complete."},
	ReasonPerTryTimeout: {Name: "try_timeout", Flag: "UT", HTTP: 504, GRPC: 14, Dubbo: 30, Bolt: 7, Text: "upstream attempt timed out",
		Hint: "The retry policy's retry_timeout expired before the response to the attempt arrived."},
	StreamIdle: {Name: "stream_idle", Flag: "SI", HTTP: 504, GRPC: 14, Dubbo: 30, Bolt: 7, Text: "upstream idle for too long",
		Hint: "The listener's stream_idle_timeout or http2_stream_idle_timeout expired without a byte of the response, or of a tunnel in either direction."},

	ReasonDownstreamDisconnect: {Name: "downstream_gone", Flag: "DC", HTTP: 499, GRPC: 1, Dubbo: 30, Bolt: 8, Text: "client disconnected",
		Hint: "The client closed its connection before the response was written. The status appears only in the log."},
	Draining: {Name: "draining", Flag: "SD", HTTP: 503, GRPC: 14, Dubbo: 100, Bolt: 4, SafeToRetry: true, Text: "shutting down",
		Hint: "Weft or the listener is draining, and the drain time ended, or for RPC nearly ended, before Weft sent the request to a host."},
	Overloaded: {Name: "overloaded", Flag: "OM", HTTP: 503, GRPC: 14, Dubbo: 100, Bolt: 4, SafeToRetry: true, Text: "overloaded",
		Hint: "An action of overload_manager rejects requests, or too many requests block. A request blocks, for example, in a filter that delays it or calls another service, and during retries. /overload of the admin port shows the actions; the detail in the access log says which limit is reached."},
	Internal: {Name: "internal", Flag: "IE", HTTP: 500, GRPC: 13, Dubbo: 80, Bolt: 3, Text: "internal error",
		Hint: "Check which of these applies:\n\n" +
			"- the control plane did not send the configuration of a filter;\n" +
			"- a cluster with proxy_protocol shares its connections between clients;\n" +
			"- a filter made a message that the protocol does not allow;\n" +
			"- Weft or a filter has a defect.\n\n" +
			"The detail in the access log names the problem. If there was a panic, the log has the stack trace; please report it."},
}

// Spec returns r's row of the table.
func (r Reason) Spec() *ReasonSpec { return &reasonSpecs[r] }

func (r Reason) String() string { return reasonSpecs[r].Name }

// Text returns a short description of r.
func (r Reason) Text() string { return reasonSpecs[r].Text }

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
