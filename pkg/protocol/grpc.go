package protocol

import "strings"

// IsGRPC reports whether a message with these fields is one of gRPC: its content
// type is application/grpc, with a subtype ("application/grpc+proto") or parameters
// or without. application/grpc-web is another protocol.
func IsGRPC(h *Header) bool {
	const kind = "application/grpc"
	value := h.Get("content-type")
	if len(value) < len(kind) || !EqualFold(value[:len(kind)], kind) {
		return false
	}
	return len(value) == len(kind) || strings.IndexByte("+; ", value[len(kind)]) >= 0
}
