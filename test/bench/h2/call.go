package h2

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/net/http2/hpack"
)

// Paths that the origin knows of gRPC. All others are HTTP's.
const (
	Unary = "/bench.Bench/Unary"  // answers with a message as large
	Echo  = "/bench.Bench/Stream" // answers each message with itself
	Hold  = "/bench.Bench/Hold"   // never answers
)

// Request returns the fields of a request for a path.
func Request(path string) []hpack.HeaderField {
	method := "GET"
	var more []hpack.HeaderField
	if IsGRPC(path) {
		method = "POST"
		more = []hpack.HeaderField{{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}}
	}
	return append([]hpack.HeaderField{
		{Name: ":method", Value: method},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: path},
		{Name: ":authority", Value: "bench.test"},
		{Name: "user-agent", Value: "bench"},
	}, more...)
}

// Trailers returns the block of a successful answer's trailers, which refers to no
// table: a literal field, its name and its value as they are.
func Trailers() []byte {
	const name = "grpc-status"
	return append(append([]byte{0, byte(len(name))}, name...), 1, '0')
}

// IsGRPC tells whether a path is one of gRPC's.
func IsGRPC(path string) bool { return path == Unary || path == Echo || path == Hold }

// Message returns a gRPC message of so many bytes, with its prefix.
func Message(size int) []byte {
	b := make([]byte, 5+size)
	binary.BigEndian.PutUint32(b[1:], uint32(size))
	return b
}

// Check returns what is wrong with the fields of an answer's head or trailers.
func Check(s *Stream, f Fields, grpc, end bool) error {
	switch {
	case !s.Head && f.Status != "200":
		return fmt.Errorf("an answer with the status %q", f.Status)
	case grpc && end && f.GRPCStatus != "0":
		return fmt.Errorf("an answer of gRPC with the status %q", f.GRPCStatus)
	}
	return nil
}
