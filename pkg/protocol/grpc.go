package protocol

import "strings"

// IsGRPC reports whether a message with these headers is a gRPC message: its content type is
// application/grpc, with or without a subtype ("application/grpc+proto"). As in Envoy,
// application/grpc-web and types with parameters do not match.
func IsGRPC(h *Header) bool {
	const contentType = "application/grpc"
	value := h.Get("content-type")
	if !HasPrefixFold(value, contentType) {
		return false
	}
	return len(value) == len(contentType) || value[len(contentType)] == '+'
}

// GRPCMethod returns the service and the method in the path of a gRPC request:
// "/package.Service/Method". A prefix before them becomes part of the service. A missing part is
// "".
func GRPCMethod(path string) (service, method string) {
	path, _, _ = strings.Cut(path, "?")
	path = strings.TrimPrefix(path, "/")
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return path, ""
}

// GRPCUnavailable is the gRPC status of a call that the server did not process, or may not have
// processed.
const GRPCUnavailable = 14

// GRPCStatus returns the grpc-status of a response: of its trailer once the body has been read to
// the end, or otherwise of its headers (trailers-only). It returns NoCode if the response has no
// grpc-status, or one that is not a number of at most three digits.
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
