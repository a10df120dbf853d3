package health

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// userAgent is the User-Agent header of checks.
const userAgent = "weft-health-check"

// roundTrip sends x to the host on a new connection, and calls read when x has the response head.
func roundTrip(ctx context.Context, h Host, proto config.Protocol, port uint16, x *protocol.Exchange, read func() error) error {
	conn, err := h.Connect(ctx, proto, port, x.Deadline)
	if err != nil {
		return err
	}
	// Close is called once: by ctx when it ends, or here if stop reports that it was not called.
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = conn.Close() // the check was canceled
	})
	defer func() {
		if !stop() {
			<-closed
			return
		}
		_ = conn.Close() // the check has ended
	}()
	if err := x.Serve(ctx, conn); err != nil {
		return err
	}
	defer x.ResetResponse()
	return read()
}

// newExchange returns an exchange with the request of a check.
func newExchange(h Host, cfg *config.HTTPCheck, method, path string, deadline time.Time) *protocol.Exchange {
	x := &protocol.Exchange{Deadline: deadline}
	x.Request.Method, x.Request.Scheme, x.Request.Path = method, "http", path
	if x.Request.Authority = cfg.Authority; cfg.Authority == "" {
		x.Request.Authority = h.Authority()
	}
	x.Request.ContentLength, x.Response.ContentLength = -1, -1
	x.Response.Code = protocol.NoCode
	x.Request.Header.Add("User-Agent", userAgent)
	return x
}

// applyMutation applies m to the headers of a request.
func applyMutation(h *protocol.Header, m *config.HeaderMutation) {
	for _, name := range m.Remove {
		h.Del(name)
	}
	for _, v := range m.Add {
		_, found := h.Lookup(v.Name)
		switch {
		case v.If == config.AddIfAbsent && found, v.If == config.AddIfPresent && !found:
		case v.Append:
			h.Add(v.Name, v.Value)
		default:
			h.Set(v.Name, v.Value)
		}
	}
}

// httpProbe passes if the host responds with an accepted status. It does not wait for the body.
type httpProbe struct {
	host     Host
	config   *config.HealthCheck
	protocol config.Protocol
}

// Probe implements Probe.
func (p *httpProbe) Probe(ctx context.Context, deadline time.Time) error {
	cfg := &p.config.HTTP
	method, path := cfg.Method, cfg.Path
	if method == "" {
		method = "GET"
	}
	if path == "" {
		path = "/"
	}
	x := newExchange(p.host, cfg, method, path, deadline)
	applyMutation(&x.Request.Header, &cfg.HeaderMutation)
	return roundTrip(ctx, p.host, p.protocol, cfg.Port, x, func() error {
		if !cfg.Accepts(x.Response.Status) {
			return fmt.Errorf("status %d", x.Response.Status)
		}
		return nil
	})
}

// grpcProbe passes if the host reports the service as serving in gRPC's health checking protocol.
// It implements only the required parts of Protocol Buffers.
type grpcProbe struct {
	host   Host
	config *config.HealthCheck
}

// Parts of the protocol: a message is a compression flag (one byte), the length, and the payload.
// In the payload, field 1 is the service of a request (type 2) or the status of a response (type
// 0).
const (
	healthPath    = "/grpc.health.v1.Health/Check"
	prefixLen     = 5
	serviceKey    = 1<<3 | 2
	statusKey     = 1 << 3
	statusServing = 1
	maxResponse   = 1 << 10 // buffer for a response, in bytes
)

// Probe implements Probe.
func (p *grpcProbe) Probe(ctx context.Context, deadline time.Time) error {
	x := newExchange(p.host, &p.config.HTTP, "POST", healthPath, deadline)
	x.Request.Header.Add("Content-Type", "application/grpc")
	body := appendRequest(nil, p.config.Service)
	x.Request.Body = protocol.NewStringBody(string(body))
	x.Request.ContentLength = int64(len(body))
	return roundTrip(ctx, p.host, config.HTTP2, p.config.HTTP.Port, x, func() error {
		if x.Response.Status != 200 {
			return fmt.Errorf("status %d", x.Response.Status)
		}
		body, err := readAll(x.Response.Body)
		if err != nil {
			return err
		}
		if code := protocol.GRPCStatus(&x.Response); code != 0 {
			return fmt.Errorf("grpc-status %d", code)
		}
		return parseResponse(body)
	})
}

// appendRequest appends a message with a HealthCheckRequest.
func appendRequest(dst []byte, service string) []byte {
	dst = append(dst, 0, 0, 0, 0, 0)
	if service != "" {
		dst = append(dst, serviceKey)
		dst = binary.AppendUvarint(dst, uint64(len(service)))
		dst = append(dst, service...)
	}
	binary.BigEndian.PutUint32(dst[1:], uint32(len(dst)-prefixLen)) //nolint:gosec // the length of a configured name
	return dst
}

// parseResponse parses a message with a HealthCheckResponse and returns nil if the service is
// serving. It rejects fields other than the status.
func parseResponse(b []byte) error {
	if len(b) < prefixLen || int(binary.BigEndian.Uint32(b[1:])) != len(b)-prefixLen {
		return errors.New("the response is not one message")
	}
	if b[0] != 0 {
		return errors.New("the response is compressed")
	}
	b = b[prefixLen:]
	status := uint64(0)
	if len(b) > 0 {
		n := 0
		if b[0] == statusKey {
			status, n = binary.Uvarint(b[1:])
		}
		if n <= 0 || 1+n != len(b) {
			return errors.New("the response is not a HealthCheckResponse")
		}
	}
	if status != statusServing {
		return fmt.Errorf("the service is not serving (status %d)", status)
	}
	return nil
}

// readAll reads body to its end. It returns an error if the body fills its buffer of maxResponse
// bytes.
func readAll(body protocol.Body) ([]byte, error) {
	buf := make([]byte, maxResponse)
	n := 0
	for body != nil {
		m, err := body.Read(buf[n:])
		n += m
		switch {
		case errors.Is(err, io.EOF):
			return buf[:n], nil
		case err != nil:
			return nil, err
		case n == len(buf):
			return nil, errors.New("the response is too long")
		}
	}
	return buf[:n], nil
}
