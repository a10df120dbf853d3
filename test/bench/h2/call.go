package h2

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/net/http2/hpack"
)

// gRPC paths of the origin. All other paths are plain HTTP.
const (
	Unary = "/bench.Bench/Unary"  // responds with a message of the same size
	Echo  = "/bench.Bench/Stream" // responds to each message with the same message
	Hold  = "/bench.Bench/Hold"   // never responds
)

// Request returns the header fields of a request for a path.
func Request(path string) []hpack.HeaderField {
	method := "GET"
	var extra []hpack.HeaderField
	if IsGRPC(path) {
		method = "POST"
		extra = []hpack.HeaderField{{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}}
	}
	return append([]hpack.HeaderField{
		{Name: ":method", Value: method},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: path},
		{Name: ":authority", Value: "bench.test"},
		{Name: "user-agent", Value: "bench"},
	}, extra...)
}

// Trailers returns the encoded trailers of a successful gRPC response. The block does not use the
// dynamic table: it is a literal field without indexing or Huffman coding.
func Trailers() []byte {
	const name = "grpc-status"
	return append(append([]byte{0, byte(len(name))}, name...), 1, '0')
}

// IsGRPC reports whether the path is a gRPC path.
func IsGRPC(path string) bool { return path == Unary || path == Echo || path == Hold }

// Message returns a gRPC message, with its prefix, whose payload is size bytes of value 0.
func Message(size int) []byte {
	b := make([]byte, 5+size)
	binary.BigEndian.PutUint32(b[1:], uint32(size))
	return b
}

// Check returns an error if the headers or trailers of a response do not report success.
func Check(s *Stream, f Fields, grpc, end bool) error {
	switch {
	case !s.HeadersReceived && f.Status != "200":
		return fmt.Errorf("a response with the status %q", f.Status)
	case grpc && end && f.GRPCStatus != "0":
		return fmt.Errorf("a gRPC response with the status %q", f.GRPCStatus)
	}
	return nil
}
