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

// The gRPC health checking protocol: the path of the service, the only method that the filter
// supports, and the responses.
const (
	healthService = "/grpc.health.v1.Health/"
	checkMethod   = "Check"

	// Response messages: not compressed, length 2, field 1 with the status.
	servingMessage    = "\x00\x00\x00\x00\x02\x08\x01"
	notServingMessage = "\x00\x00\x00\x00\x02\x08\x02"
)

// gRPC status codes of responses.
const (
	statusOK              = 0
	statusInvalidArgument = 3
	statusNotFound        = 5
	statusUnimplemented   = 12
)

// grpcHealth serves calls of the gRPC health checking protocol. It is immutable.
type grpcHealth struct {
	services   []string // service names in addition to ""
	minHealthy minHealthy
	failed     func() bool // see filter.Env.HealthFailed
}

// isGRPCHealthCall reports whether x is a call of the health checking protocol over HTTP/2. Over
// HTTP/1.1, a client may not support the trailers that end a gRPC response.
func isGRPCHealthCall(x *protocol.Exchange) bool {
	return x.Request.Method == "POST" && strings.HasPrefix(x.Request.Path, healthService) &&
		x.Meta.Protocol == string(config.HTTP2) && protocol.IsGRPC(&x.Request.Header)
}

// Serve implements protocol.BlockingService.
func (h *grpcHealth) Serve(_ context.Context, x *protocol.Exchange) error {
	if x.Request.Path != healthService+checkMethod {
		replyGRPCStatus(x, statusUnimplemented)
		return nil
	}
	name, status, err := readService(x.Request.Body)
	switch {
	case err != nil:
		return err
	case status != statusOK:
		replyGRPCStatus(x, status)
	case name != "" && !slices.Contains(h.services, name):
		replyGRPCStatus(x, statusNotFound)
	default:
		response := servingMessage
		if h.failed() || isDraining(x) || !h.minHealthy.isMet() {
			response = notServingMessage
		}
		x.LocalReply(200, "application/grpc", response)
		x.Response.ContentLength = -1 // unknown, as from other gRPC servers
		x.Response.Trailer.Add("grpc-status", strconv.Itoa(statusOK))
	}
	return nil
}

// isDraining reports whether the listener of x's connection drains.
func isDraining(x *protocol.Exchange) bool {
	return x.Meta.Conn != nil && x.Meta.Conn.DownstreamConn != nil && x.Meta.Conn.DownstreamConn.ListenerDraining()
}

// replyGRPCStatus responds with a status and no message (Trailers-Only).
func replyGRPCStatus(x *protocol.Exchange, status int) {
	x.LocalReply(200, "", "")
	x.Response.ContentLength = -1
	x.Response.Header.Add("Content-Type", "application/grpc")
	x.Response.Header.Add("grpc-status", strconv.Itoa(status))
}

const (
	prefixLen       = 5       // prefix of a gRPC message: the compressed flag and the length
	maxRequestBytes = 4 << 10 // size of the body buffer; a body that fills it is rejected
)

// readService returns the service name in the request message in body, or a status other than
// statusOK if the message is invalid. err reports that reading body failed.
func readService(body protocol.Body) (name string, status int, err error) {
	content := make([]byte, maxRequestBytes)
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
	case n < prefixLen, n == maxRequestBytes, int64(binary.BigEndian.Uint32(content[1:])) != int64(n-prefixLen):
		return "", statusInvalidArgument, nil
	case content[0] != 0: // compressed, but the filter advertises no compression
		return "", statusUnimplemented, nil
	}
	name, ok := parseRequest(content[prefixLen:])
	if !ok {
		return "", statusInvalidArgument, nil
	}
	return name, statusOK, nil
}

// Wire types of Protocol Buffers.
const (
	typeVarint  = 0
	typeFixed64 = 1
	typeBytes   = 2
	typeFixed32 = 5
)

// parseRequest returns field 1 of a HealthCheckRequest, the service. If the field repeats,
// parseRequest uses the last one. It skips other fields. ok is false if b is malformed.
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
