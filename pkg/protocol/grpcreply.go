package protocol

import (
	"strconv"
	"strings"
)

// ReplyGRPC converts a local reply for an error to a trailers-only gRPC response: status 200, the
// error in grpc-status and grpc-message, no body. It keeps headers that filters and routes set,
// including grpc-status and grpc-message, but not content-type: contentType is the request's. It
// changes neither upstream responses nor local replies with status 200 that have no Reason. If the
// replies are those of Envoy, it converts direct responses with status 200, too, and the message is
// the text of the reply.
func ReplyGRPC(x *Exchange, contentType string) {
	r := &x.Response
	isService := x.Record.Reason == ReasonNone && r.Status == 200 && (x.EnvoyReplies == nil || x.Record.EnvoyReply == nil)
	if r.Source != LocalReply || isService {
		return // the response of a host, or of a filter that implements a gRPC service
	}
	code, message := grpcCode(x)
	if x.EnvoyReplies != nil {
		contentType, code, message = "application/grpc", GRPCCodeOf(r.Status), x.LocalReplyBody()
	}
	if r.Body != nil {
		_ = r.Body.Close() // the body is not sent
		r.Body = nil
	}
	r.Status, r.ContentLength = 200, -1
	r.Trailer.Reset()
	r.Header.Set("content-type", contentType)
	if _, ok := r.Header.Lookup("grpc-status"); !ok {
		r.Header.Set("grpc-status", strconv.Itoa(code))
	}
	if _, ok := r.Header.Lookup("grpc-message"); !ok && message != "" {
		r.Header.Set("grpc-message", EncodeGRPCMessage(message))
	}
}

// grpcCode returns the grpc-status and the grpc-message of a local reply.
func grpcCode(x *Exchange) (code int, message string) {
	r := x.Record.Reason
	if r == UpstreamTimeout || r == ReasonPerTryTimeout || r == StreamIdle {
		if _, ok := x.Request.Header.Lookup("grpc-timeout"); ok {
			return 4, r.Text() // DEADLINE_EXCEEDED: the client set a deadline
		}
	}
	if r != ReasonNone {
		return r.Spec().GRPC, r.Text()
	}
	return GRPCCodeOf(x.Response.Status), "HTTP status " + strconv.Itoa(x.Response.Status)
}

// GRPCCodeOf returns the gRPC status for the HTTP status of a response without grpc-status (grpc:
// http-grpc-status-mapping).
func GRPCCodeOf(status int) int {
	switch status {
	case 400:
		return 13 // INTERNAL
	case 401:
		return 16 // UNAUTHENTICATED
	case 403:
		return 7 // PERMISSION_DENIED
	case 404:
		return 12 // UNIMPLEMENTED
	case 429, 502, 503, 504:
		return 14 // UNAVAILABLE
	}
	return 2 // UNKNOWN
}

// EncodeGRPCMessage returns s as a grpc-message: '%' and bytes that are not printable ASCII become
// "%XX".
func EncodeGRPCMessage(s string) string {
	const hex = "0123456789ABCDEF"
	plain := true
	for i := range len(s) {
		plain = plain && isPlainGRPC(s[i])
	}
	if plain {
		return s
	}
	var out strings.Builder
	for i := range len(s) {
		if c := s[i]; isPlainGRPC(c) {
			out.WriteByte(c)
		} else {
			out.WriteByte('%')
			out.WriteByte(hex[c>>4])
			out.WriteByte(hex[c&15])
		}
	}
	return out.String()
}

func isPlainGRPC(c byte) bool { return c >= ' ' && c <= '~' && c != '%' }
