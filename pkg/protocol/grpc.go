package protocol

import "strings"

// IsGRPC reports whether a message with these fields is one of gRPC: its content
// type is application/grpc, with a subtype ("application/grpc+proto") or without.
// application/grpc-web is another protocol, and so are types with parameters, as for
// Envoy.
func IsGRPC(h *Header) bool {
	const kind = "application/grpc"
	value := h.Get("content-type")
	if len(value) < len(kind) || !EqualFold(value[:len(kind)], kind) {
		return false
	}
	return len(value) == len(kind) || value[len(kind)] == '+'
}

// GRPCMethod returns the service and the method that the path of a gRPC request
// names: "/package.Service/Method", perhaps behind a prefix, which counts as the
// service's. What is not there is "".
func GRPCMethod(path string) (service, method string) {
	path, _, _ = strings.Cut(path, "?")
	path = strings.TrimPrefix(path, "/")
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return path, ""
}

// GRPCUnavailable is the gRPC status of a call that its server did not take on, or
// may not have.
const GRPCUnavailable = 14

// GRPCStatus returns the grpc-status of an answer: of its trailers once its content
// has been read to the end, or of its head if there is nothing else (trailers-only).
// NoCode: there is none, or it is no number of at most three digits.
func GRPCStatus(r *Response) int {
	const field = "grpc-status"
	text, ok := r.Trailer.Lookup(field)
	if !ok {
		text = r.Header.Get(field)
	}
	if text == "" || len(text) > 3 {
		return NoCode
	}
	code := 0
	for i := range len(text) {
		digit := text[i] - '0'
		if digit > 9 {
			return NoCode
		}
		code = code*10 + int(digit)
	}
	return code
}
