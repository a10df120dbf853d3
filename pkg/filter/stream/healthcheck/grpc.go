package healthcheck

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// The health protocol of gRPC (grpc: health-checking): the service, the one method
// that is answered, and what it says.
const (
	healthService = "/grpc.health.v1.Health/"
	checkMethod   = "Check"

	// Content of answers: no compression, the length, field 1 with its value.
	serving    = "\x00\x00\x00\x00\x02\x08\x01"
	notServing = "\x00\x00\x00\x00\x02\x08\x02"
)

// The statuses of gRPC that are answered.
const (
	statusOK              = 0
	statusInvalidArgument = 3
	statusNotFound        = 5
	statusUnimplemented   = 12
)

// health answers calls of gRPC's health protocol. It is immutable.
type health struct {
	services []string // that are known beside ""
	least    minHealthy
}

// called reports whether x is a call of the health protocol. gRPC's answers end with
// trailers, which only HTTP/2 has everywhere.
func called(x *protocol.Exchange) bool {
	return x.Request.Method == "POST" && strings.HasPrefix(x.Request.Path, healthService) &&
		x.Meta.Protocol == string(config.HTTP2) && protocol.IsGRPC(&x.Request.Header)
}

// drainer is a connection that knows whether it is about to end, because its listener
// is: as network.Conn does.
type drainer interface{ ListenerDraining() bool }

// Serve is protocol.Service's.
func (h *health) Serve(_ context.Context, x *protocol.Exchange) error {
	if x.Request.Path != healthService+checkMethod {
		end(x, statusUnimplemented)
		return nil
	}
	name, status, err := read(x.Request.Body)
	switch {
	case err != nil:
		return err
	case status != statusOK:
		end(x, status)
	case name != "" && !slices.Contains(h.services, name):
		end(x, statusNotFound)
	default:
		answer := serving
		if isLeaving(x) || !h.least.met() {
			answer = notServing
		}
		x.LocalReply(200, "application/grpc", answer)
		x.Response.ContentLength = -1 // as other servers of gRPC have it
		x.Response.Trailer.Add("grpc-status", strconv.Itoa(statusOK))
	}
	return nil
}

// isLeaving reports whether the connection that x came on is about to end.
func isLeaving(x *protocol.Exchange) bool {
	if x.Meta.Conn == nil {
		return false
	}
	l, ok := x.Meta.Conn.DownstreamConn.(drainer)
	return ok && l.ListenerDraining()
}

// end answers with a status alone.
func end(x *protocol.Exchange, status int) {
	x.LocalReply(200, "", "")
	x.Response.ContentLength = -1
	x.Response.Header.Add("Content-Type", "application/grpc")
	x.Response.Header.Add("grpc-status", strconv.Itoa(status))
}

const (
	prefixLen = 5       // of a message of gRPC: compressed or not, and its length
	longest   = 4 << 10 // content that is taken, in bytes
)

// read returns the name of the service that the content asks about, or the status
// that says why there is none. An error is that of the content.
func read(body protocol.Body) (name string, status int, err error) {
	content := make([]byte, longest)
	n := 0
	for body != nil && n < len(content) {
		var m int
		m, err = body.Read(content[n:])
		n += m
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", 0, err
		}
	}
	content = content[:n]
	switch {
	case n < prefixLen, n == longest, int64(binary.BigEndian.Uint32(content[1:])) != int64(n-prefixLen):
		return "", statusInvalidArgument, nil
	case content[0] != 0: // compressed, and we have not said that we can read that
		return "", statusUnimplemented, nil
	}
	name, ok := parseRequest(content[prefixLen:])
	if !ok {
		return "", statusInvalidArgument, nil
	}
	return name, statusOK, nil
}

// The types of fields in Protocol Buffers.
const (
	typeVarint  = 0
	typeFixed64 = 1
	typeBytes   = 2
	typeFixed32 = 5
)

// parseRequest reads a HealthCheckRequest, whose field 1 is the service: of several
// the last counts, and other fields mean nothing.
func parseRequest(b []byte) (service string, ok bool) {
	const serviceKey = 1<<3 | typeBytes
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 || key>>3 == 0 {
			return "", false
		}
		b = b[n:]
		size := uint64(0)
		switch key & 7 {
		case typeVarint:
			if _, n = binary.Uvarint(b); n <= 0 {
				return "", false
			}
			b = b[n:]
		case typeFixed64:
			size = 8
		case typeFixed32:
			size = 4
		case typeBytes:
			if size, n = binary.Uvarint(b); n <= 0 {
				return "", false
			}
			b = b[n:]
		default:
			return "", false
		}
		if size > uint64(len(b)) {
			return "", false
		}
		if key == serviceKey {
			service = string(b[:size])
		}
		b = b[size:]
	}
	return service, true
}
