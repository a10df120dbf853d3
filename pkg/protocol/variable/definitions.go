package variable

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// mosnTimeFormat is the time format of MOSN's access log.
const mosnTimeFormat = "2006/01/02 15:04:05.000"

// definitions is the table of variables, in the order of the documentation.
//
//nolint:gochecknoglobals // a constant table
var definitions = []definition{
	{name: "start_time", write: startTime,
		doc: "Time at which the first byte of the request was read, as 2006/01/02 15:04:05.000 in local time."},
	{name: "start_time_rfc3339", write: startTimeRFC3339,
		doc: "Time at which the first byte of the request was read, in the format of RFC 3339, with milliseconds and time zone: 2006-01-02T15:04:05.000+08:00."},
	{name: "duration", write: durationText(duration),
		doc: "Time from the first byte of the request to the last byte of the response, as 1.5ms."},
	{name: "request_finished_duration", write: durationText(duration), doc: "The same as duration."},
	{name: "request_received_duration", write: durationText(requestDuration),
		doc: "Time from the first byte of the request until Weft started to send the last attempt."},
	{name: "response_received_duration", write: durationText(responseDuration),
		doc: "Time from the first byte of the request until the head of the upstream response was read."},
	{name: "process_time_duration", write: durationText(processDuration),
		doc: "Estimate of the time that the proxy itself took: duration without the time from the start of the last attempt to the head of its response."},
	{name: "duration_ms", write: durationMillis(duration), isNumber: true, doc: "Time from the first byte of the request to the last byte of the response, in milliseconds: 1.500."},
	{name: "request_received_duration_ms", write: durationMillis(requestDuration), isNumber: true,
		doc: "%request_received_duration% in milliseconds, as a number."},
	{name: "response_received_duration_ms", write: durationMillis(responseDuration), isNumber: true,
		doc: "%response_received_duration% in milliseconds, as a number."},
	{name: "process_time_duration_ms", write: durationMillis(processDuration), isNumber: true,
		doc: "%process_time_duration% in milliseconds, as a number."},

	{name: "protocol", text: downstreamProtocol, doc: "Protocol of the client, as in the configuration: Http1, dubbo."},
	{name: "version", text: version, doc: "Version of the client's protocol: HTTP/1.1."},
	{name: "listener", text: listener, doc: "Name of the listener."},
	{name: "listener_name", text: listener, doc: "The same as listener."},
	{name: "connection_id", write: connectionID, isNumber: true, doc: "Number of the downstream connection, unique in the process."},
	{name: "downstream_local_address", text: downstreamLocal, doc: "Local address of the downstream connection: ip:port, or a path."},
	{name: "downstream_remote_address", text: downstreamRemote, doc: "Remote address of the downstream connection: ip:port, or ip:0 if the address comes from X-Forwarded-For (xff_num_trusted_hops)."},
	{name: "downstream_remote_ip", text: downstreamIP, doc: "downstream_remote_address without the port."},
	{name: "downstream_direct_remote_address", write: downstreamDirect,
		doc: "Remote address of the socket. It differs from downstream_remote_address if that comes from the PROXY protocol or xff_num_trusted_hops."},
	{name: "downstream_tls_version", text: tlsSide(downstreamTLS).stateVar(tlsVersion), doc: "TLS version of the downstream connection: TLSv1.3."},
	{name: "downstream_tls_cipher", text: tlsSide(downstreamTLS).stateVar(tlsCipher), doc: "TLS cipher suite of the downstream connection, by its IANA name."},
	{name: "downstream_tls_alpn", text: tlsSide(downstreamTLS).stateVar(tlsProtocol), doc: "Protocol that ALPN negotiated with the client."},
	{name: "requested_server_name", text: tlsSide(downstreamTLS).stateVar(serverName), doc: "Server name that the client requested in the TLS handshake (SNI)."},
	{name: "downstream_peer_subject", text: tlsSide(downstreamTLS).certificateVar(peerSubject), doc: "Subject of the client certificate. The downstream_peer variables have values only if the certificate was verified."},
	{name: "downstream_peer_issuer", text: tlsSide(downstreamTLS).certificateVar(peerIssuer), doc: "Issuer of the client certificate."},
	{name: "downstream_peer_serial", text: tlsSide(downstreamTLS).certificateVar(peerSerial), doc: "Serial number of the client certificate, hexadecimal."},
	{name: "downstream_peer_fingerprint_256", text: tlsSide(downstreamTLS).certificateVar(peerFingerprint), doc: "SHA-256 of the client certificate, hexadecimal."},
	{name: "downstream_peer_uri_san", write: tlsSide(downstreamTLS).sanVar(peerURIs), doc: "URI subject alternative names of the client certificate, such as SPIFFE identities, separated by commas."},
	{name: "downstream_peer_dns_san", write: tlsSide(downstreamTLS).sanVar(peerDNS), doc: "DNS subject alternative names of the client certificate, separated by commas."},

	{name: "method", text: method, doc: "Method of the request. For RPC protocols, see x-mosn-rpc-method."},
	{name: "request_method", text: method, doc: "The same as method."},
	{name: "x-mosn-method", text: method, doc: "The same as method."},
	{name: "scheme", text: scheme, doc: "http or https."},
	{name: "request_scheme", text: scheme, doc: "The same as scheme."},
	{name: "x-mosn-scheme", text: scheme, doc: "The same as scheme."},
	{name: "authority", text: authority, doc: "Current host and port of the request: after a rewrite, the new ones; for RPC protocols, the interface."},
	{name: "x-mosn-host", text: authority, doc: "The same as authority."},
	{name: "path", text: path, doc: "Current path without the query: after a rewrite, the new path."},
	{name: "x-mosn-path", text: path, doc: "The same as path."},
	{name: "original_path", text: originalPath, doc: "Path without the query, before route rewrites; after path normalization, if it is configured."},
	{name: "request_path", text: originalPath, doc: "The same as original_path."},
	{name: "request_path_original", text: originalPath, doc: "The same as original_path."},
	{name: "x-mosn-path-original", text: originalPath, doc: "The same as original_path."},
	{name: "request_uri", text: requestURI, doc: "Path and query, before route rewrites; after path normalization, if it is configured."},
	{name: "query", text: query, doc: "Query without the question mark."},
	{name: "x-mosn-querystring", text: query, doc: "The same as query."},
	{name: "request_arg", text: query, doc: "The same as query."},
	{name: "request_arg_", text: queryArgument, doc: "First query parameter NAME, still percent-encoded."},
	{name: "request_header_", text: requestHeader, field: headerArgument, doc: "First header NAME of the request; for RPC protocols, the attachment."},
	{name: "cookie_", text: cookie, doc: "Cookie NAME of the request."},
	{name: "request_id", text: requestID, field: requestIDField, doc: "X-Request-Id header of the request."},
	{name: "x-mosn-rpc-service", text: rpcService, field: rpcField(serviceField), doc: "Service that an RPC request calls: its service header; for gRPC, the first part of original_path."},
	{name: "x-mosn-rpc-method", text: rpcMethod, field: rpcField(methodField), doc: "Method that an RPC request calls: its method header; for gRPC, the last part of original_path."},
	{name: "rpc_service", text: rpcService, field: rpcField(serviceField), doc: "The same as x-mosn-rpc-service."},
	{name: "rpc_method", text: rpcMethod, field: rpcField(methodField), doc: "The same as x-mosn-rpc-method."},
	{name: "Dubbo_service", text: rpcService, field: rpcField(serviceField), doc: "The same as x-mosn-rpc-service."},
	{name: "Dubbo_method", text: rpcMethod, field: rpcField(methodField), doc: "The same as x-mosn-rpc-method."},
	{name: "rpc_version", text: rpcVersion, doc: "Version of the service that an RPC request calls."},
	{name: "rpc_group", text: rpcGroup, doc: "Group of the service that an RPC request calls."},
	{name: "rpc_serialization", text: rpcSerialization, doc: "Serialization of the arguments of an RPC request: hessian2."},
	{name: "rpc_oneway", text: rpcOneWay, doc: "true if an RPC request is one-way: the client expects no response."},
	{name: "request_length", write: requestLength, isNumber: true, doc: "Number of bytes of the request's head and body; for HTTP/2, of the body only; for RPC protocols, of the frame."},
	{name: "bytes_received", write: bytesReceived, isNumber: true, doc: "Number of bytes of the request body that were read; for RPC protocols, of the frame."},

	{name: "route", text: route, doc: "Route that matched."},
	{name: "route_name", text: route, doc: "The same as route."},
	{name: "upstream_cluster", text: cluster, doc: "Cluster that the route chose."},
	{name: "upstream_host", text: host, doc: "Host of the last attempt."},
	{name: "upstream_local_address", text: upstreamLocal, doc: "Local address of the last attempt's connection."},
	{name: "upstream_tls_version", text: tlsSide(upstreamTLS).stateVar(tlsVersion), doc: "TLS version of the last attempt's connection: TLSv1.3."},
	{name: "upstream_tls_cipher", text: tlsSide(upstreamTLS).stateVar(tlsCipher), doc: "TLS cipher suite of the last attempt's connection, by its IANA name."},
	{name: "upstream_tls_alpn", text: tlsSide(upstreamTLS).stateVar(tlsProtocol), doc: "Protocol that ALPN negotiated with the host."},
	{name: "upstream_tls_resumed", text: tlsSide(upstreamTLS).stateVar(tlsResumed), doc: "true if the last attempt's connection resumed a TLS session, otherwise false."},
	{name: "upstream_peer_subject", text: tlsSide(upstreamTLS).certificateVar(peerSubject), doc: "Subject of the host's certificate. The upstream_peer variables have values only if the certificate was verified."},
	{name: "upstream_peer_issuer", text: tlsSide(upstreamTLS).certificateVar(peerIssuer), doc: "Issuer of the host's certificate."},
	{name: "upstream_peer_fingerprint_256", text: tlsSide(upstreamTLS).certificateVar(peerFingerprint), doc: "SHA-256 of the host's certificate, hexadecimal."},
	{name: "upstream_peer_uri_san", write: tlsSide(upstreamTLS).sanVar(peerURIs), doc: "URI subject alternative names of the host's certificate, separated by commas."},
	{name: "upstream_peer_dns_san", write: tlsSide(upstreamTLS).sanVar(peerDNS), doc: "DNS subject alternative names of the host's certificate, separated by commas."},
	{name: "upstream_transport_failure_reason", text: attemptFailure, doc: "Reason for the failure of the last attempt."},
	{name: "attempts", write: attempts, isNumber: true, doc: "Number of attempts."},

	{name: "response_code", write: responseCode, isNumber: true, doc: "Status of the response."},
	{name: "rpc_status", write: rpcStatus, isNumber: true, doc: "Status of an RPC response in the numbers of its protocol: OK is 20 in Dubbo, 0 in Bolt and gRPC."},
	{name: "response_flag", text: responseFlag, doc: "Flag of the reason for which the proxy sent a local reply or ended the request: NR, UH, UT; see docs/errors.md. The flags of other events precede it, separated by commas: DI, UAEX, URX, UO, LH."},
	{name: "response_flags", text: responseFlag, doc: "The same as response_flag."},
	{name: "response_reason", text: responseReason, doc: "Name of the reason for which the proxy sent a local reply or ended the request: no_route, no_healthy_host."},
	{name: "response_detail", text: responseDetail, doc: "Text of the reason that response_reason names, with the cause."},
	{name: "response_code_details", text: responseCodeDetails, doc: "Why the response has its status, in the words of Envoy: via_upstream, direct_response, no_healthy_upstream."},
	{name: "response_header_", text: responseHeader, doc: "First header NAME of the response."},
	{name: "bytes_sent", write: bytesSent, isNumber: true, doc: "Number of bytes of the response body that were written; for RPC protocols, of the frame."},
}

// Times and durations.

func startTime(dst []byte, x *protocol.Exchange) ([]byte, bool) {
	if x.Meta.Start.IsZero() {
		return dst, false
	}
	return x.Meta.Start.AppendFormat(dst, mosnTimeFormat), true
}

func startTimeRFC3339(dst []byte, x *protocol.Exchange) ([]byte, bool) {
	if x.Meta.Start.IsZero() {
		return dst, false
	}
	return appendRFC3339(dst, x.Meta.Start), true
}

// appendRFC3339 appends t with milliseconds. AppendFormat is fast for time.RFC3339, which has no
// fraction, and slow for formats with one.
func appendRFC3339(dst []byte, t time.Time) []byte {
	const seconds = len("2006-01-02T15:04:05")
	start := len(dst)
	dst = t.AppendFormat(dst, time.RFC3339)
	var zone [len("+08:00")]byte
	n := copy(zone[:], dst[start+seconds:])
	milli := t.Nanosecond() / 1e6
	dst = append(dst[:start+seconds], '.', byte('0'+milli/100), byte('0'+milli/10%10), byte('0'+milli%10))
	return append(dst, zone[:n]...)
}

// span returns the time between two events of an exchange, and false if one of them has not
// happened.
type span func(x *protocol.Exchange) (time.Duration, bool)

func duration(x *protocol.Exchange) (time.Duration, bool) {
	return between(x.Meta.Start, x.Record.End)
}

func requestDuration(x *protocol.Exchange) (time.Duration, bool) {
	return between(x.Meta.Start, x.Record.UpstreamStart)
}

func responseDuration(x *protocol.Exchange) (time.Duration, bool) {
	return between(x.Meta.Start, x.Record.UpstreamFirstByte)
}

func processDuration(x *protocol.Exchange) (time.Duration, bool) {
	r := &x.Record
	if r.UpstreamStart.IsZero() || r.UpstreamFirstByte.IsZero() {
		return duration(x)
	}
	waited := r.UpstreamFirstByte.Sub(r.UpstreamStart)
	return between(x.Meta.Start.Add(waited), r.End)
}

func between(from, to time.Time) (time.Duration, bool) {
	if from.IsZero() || to.IsZero() {
		return 0, false
	}
	return to.Sub(from), true
}

// durationText writes a span as Go writes durations: 1.5ms.
func durationText(s span) func(dst []byte, x *protocol.Exchange) ([]byte, bool) {
	return func(dst []byte, x *protocol.Exchange) ([]byte, bool) {
		d, ok := s(x)
		if !ok {
			return dst, false
		}
		return appendDuration(dst, d), true
	}
}

// appendDuration appends d.String() without an allocation, because the compiler inlines String.
func appendDuration(dst []byte, d time.Duration) []byte { return append(dst, d.String()...) }

// durationMillis writes a span in milliseconds with three decimals: 1.500. It writes a negative
// span as 0.000.
func durationMillis(s span) func(dst []byte, x *protocol.Exchange) ([]byte, bool) {
	return func(dst []byte, x *protocol.Exchange) ([]byte, bool) {
		d, ok := s(x)
		if !ok {
			return dst, false
		}
		micro := max(d.Microseconds(), 0)
		dst = strconv.AppendInt(dst, micro/1000, 10)
		fraction := micro % 1000
		return append(dst, '.', byte('0'+fraction/100), byte('0'+fraction/10%10), byte('0'+fraction%10)), true
	}
}

// Numbers.

func downstreamDirect(dst []byte, x *protocol.Exchange) ([]byte, bool) {
	if x.Meta.Conn == nil {
		return dst, false
	}
	direct := x.Meta.Conn.DirectRemote()
	if !direct.IsValid() {
		return dst, false
	}
	return direct.AppendTo(dst), true
}

func connectionID(dst []byte, x *protocol.Exchange) ([]byte, bool) {
	if x.Meta.Conn == nil {
		return dst, false
	}
	return strconv.AppendUint(dst, x.Meta.Conn.ID, 10), true
}

func requestLength(dst []byte, x *protocol.Exchange) ([]byte, bool) {
	return strconv.AppendInt(dst, int64(x.Meta.HeadSize)+x.Record.RequestBytes, 10), true
}

func bytesReceived(dst []byte, x *protocol.Exchange) ([]byte, bool) {
	return strconv.AppendInt(dst, x.Record.RequestBytes, 10), true
}

func bytesSent(dst []byte, x *protocol.Exchange) ([]byte, bool) {
	return strconv.AppendInt(dst, x.Record.ResponseBytes, 10), true
}

func attempts(dst []byte, x *protocol.Exchange) ([]byte, bool) {
	return strconv.AppendInt(dst, int64(len(x.Record.Attempts)), 10), true
}

func responseCode(dst []byte, x *protocol.Exchange) ([]byte, bool) {
	if x.Response.Status == 0 {
		return dst, false
	}
	return strconv.AppendInt(dst, int64(x.Response.Status), 10), true
}

// Connection.

func downstreamProtocol(x *protocol.Exchange, _ string) (string, bool) {
	return nonEmpty(x.Meta.Protocol)
}

func version(x *protocol.Exchange, _ string) (string, bool) { return nonEmpty(x.Meta.Version) }

func listener(x *protocol.Exchange, _ string) (string, bool) {
	if x.Meta.Conn == nil {
		return "", false
	}
	return nonEmpty(x.Meta.Conn.Listener)
}

func downstreamLocal(x *protocol.Exchange, _ string) (string, bool) {
	if x.Meta.Conn == nil {
		return "", false
	}
	return nonEmpty(x.Meta.Conn.LocalText)
}

func downstreamRemote(x *protocol.Exchange, _ string) (string, bool) {
	if x.Meta.Client.IsValid() {
		return netip.AddrPortFrom(x.Meta.Client, 0).String(), true
	}
	if x.Meta.Conn == nil {
		return "", false
	}
	return nonEmpty(x.Meta.Conn.RemoteText)
}

func downstreamIP(x *protocol.Exchange, _ string) (string, bool) {
	return nonEmpty(x.Meta.ClientIP())
}

// Request.

func method(x *protocol.Exchange, _ string) (string, bool) { return nonEmpty(x.Request.Method) }

func scheme(x *protocol.Exchange, _ string) (string, bool) { return nonEmpty(x.Request.Scheme) }

func authority(x *protocol.Exchange, _ string) (string, bool) { return nonEmpty(x.Request.Authority) }

func path(x *protocol.Exchange, _ string) (string, bool) {
	before, _, _ := strings.Cut(x.Request.Path, "?")
	return nonEmpty(before)
}

func requestURI(x *protocol.Exchange, _ string) (string, bool) {
	if x.Record.OriginalPath != "" {
		return x.Record.OriginalPath, true
	}
	return nonEmpty(x.Request.Path)
}

func originalPath(x *protocol.Exchange, _ string) (string, bool) {
	uri, _ := requestURI(x, "")
	before, _, _ := strings.Cut(uri, "?")
	return nonEmpty(before)
}

func query(x *protocol.Exchange, _ string) (string, bool) {
	_, after, ok := strings.Cut(x.Request.Path, "?")
	return after, ok
}

func queryArgument(x *protocol.Exchange, name string) (string, bool) {
	remaining, _ := query(x, "")
	for remaining != "" {
		var pair string
		pair, remaining, _ = strings.Cut(remaining, "&")
		if key, value, _ := strings.Cut(pair, "="); key == name {
			return value, true
		}
	}
	return "", false
}

func requestHeader(x *protocol.Exchange, name string) (string, bool) {
	return x.Request.Header.Lookup(name)
}

// cookie returns the cookie called name. It searches all Cookie fields, because HTTP/2 may split
// the header (RFC 9113 8.2.3).
func cookie(x *protocol.Exchange, name string) (string, bool) {
	h := &x.Request.Header
	for i := range h.Len() {
		field := h.At(i)
		if !protocol.EqualFold(field.Name, "Cookie") {
			continue
		}
		for remaining := field.Value; remaining != ""; {
			var pair string
			pair, remaining, _ = strings.Cut(remaining, ";")
			if key, value, ok := strings.Cut(strings.TrimLeft(pair, " "), "="); ok && key == name {
				return value, true
			}
		}
	}
	return "", false
}

func requestID(x *protocol.Exchange, _ string) (string, bool) {
	return x.Request.Header.Lookup(requestIDName)
}

const requestIDName = "X-Request-Id"

func requestIDField(*protocol.Exchange, string) (string, bool) { return requestIDName, true }

// headerArgument is the field function of a variable whose argument is the name of a header.
func headerArgument(_ *protocol.Exchange, name string) (string, bool) { return name, true }

// Headers that contain the service and the method of an RPC request.
const (
	serviceField = "service"
	methodField  = "method"
)

// rpcField returns the field function of a variable for the service or the method. The value is a
// header that can repeat only in plain HTTP. In an RPC request, further headers of that name are
// attachments; in a gRPC request, the value is a part of the path.
func rpcField(name string) func(x *protocol.Exchange, _ string) (string, bool) {
	return func(x *protocol.Exchange, _ string) (string, bool) {
		return name, x.Request.Method != "" && !isGRPC(x)
	}
}

func rpcService(x *protocol.Exchange, _ string) (string, bool) {
	if isGRPC(x) {
		service, _ := grpcTarget(x)
		return nonEmpty(service)
	}
	return x.Request.Header.Lookup(serviceField)
}

func rpcMethod(x *protocol.Exchange, _ string) (string, bool) {
	if isGRPC(x) {
		_, method := grpcTarget(x)
		return nonEmpty(method)
	}
	return x.Request.Header.Lookup(methodField)
}

// isGRPC reports whether x is a gRPC request over HTTP.
func isGRPC(x *protocol.Exchange) bool {
	return x.Request.Method != "" && protocol.IsGRPC(&x.Request.Header)
}

// grpcTarget returns the service and the method in the original path.
func grpcTarget(x *protocol.Exchange) (service, method string) {
	uri, _ := requestURI(x, "")
	return protocol.GRPCMethod(uri)
}

func rpcVersion(x *protocol.Exchange, _ string) (string, bool) {
	return rpcHeader(x, "version")
}

func rpcGroup(x *protocol.Exchange, _ string) (string, bool) {
	return rpcHeader(x, "group")
}

// rpcHeader returns a header of an RPC request. In HTTP, a header of that name has another meaning.
func rpcHeader(x *protocol.Exchange, name string) (string, bool) {
	if x.Request.Method != "" {
		return "", false
	}
	return x.Request.Header.Lookup(name)
}

func rpcSerialization(x *protocol.Exchange, _ string) (string, bool) {
	return nonEmpty(x.Request.Serialization)
}

func rpcOneWay(x *protocol.Exchange, _ string) (string, bool) {
	if !x.Request.OneWay {
		return "", false
	}
	return "true", true
}

func rpcStatus(dst []byte, x *protocol.Exchange) ([]byte, bool) {
	code := x.Response.Code
	if x.Request.Method != "" {
		if code = protocol.NoCode; isGRPC(x) {
			code = protocol.GRPCStatus(&x.Response)
		}
	}
	if x.Response.Status == 0 || code == protocol.NoCode {
		return dst, false
	}
	return strconv.AppendInt(dst, int64(code), 10), true
}

// Upstream.

func route(x *protocol.Exchange, _ string) (string, bool) { return scopeName(x.Record.Route) }

func cluster(x *protocol.Exchange, _ string) (string, bool) { return scopeName(x.Record.Cluster) }

func host(x *protocol.Exchange, _ string) (string, bool) { return scopeName(x.Record.Host()) }

func upstreamLocal(x *protocol.Exchange, _ string) (string, bool) {
	last := lastAttempt(x)
	if last == nil {
		return "", false
	}
	return nonEmpty(last.Local)
}

func attemptFailure(x *protocol.Exchange, _ string) (string, bool) {
	last := lastAttempt(x)
	if last == nil || last.Reason == protocol.ReasonNone {
		return "", false
	}
	return last.Reason.Text(), true
}

func lastAttempt(x *protocol.Exchange) *protocol.Attempt {
	n := len(x.Record.Attempts)
	if n == 0 {
		return nil
	}
	return &x.Record.Attempts[n-1]
}

func scopeName(scope protocol.Named) (string, bool) {
	if scope == nil {
		return "", false
	}
	return nonEmpty(scope.Name())
}

// Response.

func responseFlag(x *protocol.Exchange, _ string) (string, bool) {
	if flags := x.FlagNames(); flags != protocol.ReasonNone.Spec().Flag {
		return flags, true
	}
	return "", false
}

func responseReason(x *protocol.Exchange, _ string) (string, bool) {
	if x.Record.Reason == protocol.ReasonNone {
		return "", false
	}
	return x.Record.Reason.String(), true
}

func responseCodeDetails(x *protocol.Exchange, _ string) (string, bool) {
	return nonEmpty(x.CodeDetails())
}

func responseDetail(x *protocol.Exchange, _ string) (string, bool) { return nonEmpty(x.Record.Detail) }

func responseHeader(x *protocol.Exchange, name string) (string, bool) {
	return x.Response.Header.Lookup(name)
}

// nonEmpty returns s, and whether it is not empty.
func nonEmpty(s string) (string, bool) { return s, s != "" }
