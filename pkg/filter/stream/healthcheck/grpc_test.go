package healthcheck

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// newGRPCHealthCheck returns a gRPC call with a body.
func newGRPCHealthCheck(path, content string) *protocol.Exchange {
	x := newRequest("POST", path)
	x.Meta.Protocol = "Http2"
	x.Request.Header.Add("content-type", "application/grpc")
	x.Request.Body = protocol.NewStringBody(content)
	return x
}

// grpcMessage returns a gRPC message.
func grpcMessage(content string) string {
	return "\x00\x00\x00\x00" + string(rune(len(content))) + content
}

// fakeConn is a connection whose listener drains if draining is set.
type fakeConn struct {
	protocol.DownstreamConn
	draining bool
}

func (c fakeConn) ListenerDraining() bool { return c.draining }

func TestGRPCHealthCheck(t *testing.T) {
	const path = "/grpc.health.v1.Health/Check"
	for name, test := range map[string]struct {
		path, content string
		draining      bool
		status        int
		want          string
	}{
		"no service name":           {path: path, content: grpcMessage(""), want: servingMessage},
		"empty service name":        {path: path, content: grpcMessage("\n\x00"), want: servingMessage},
		"configured service":        {path: path, content: grpcMessage("\n\nshop.Items"), want: servingMessage},
		"unknown service":           {path: path, content: grpcMessage("\n\nshop.Other"), status: 5},
		"draining":                  {path: path, content: grpcMessage(""), draining: true, want: notServingMessage},
		"draining, unknown service": {path: path, content: grpcMessage("\n\x01x"), draining: true, status: 5},
		"Watch":                     {path: "/grpc.health.v1.Health/Watch", content: grpcMessage(""), status: 12},
		"List":                      {path: "/grpc.health.v1.Health/List", content: grpcMessage(""), status: 12},
		"compressed":                {path: path, content: "\x01\x00\x00\x00\x01x", status: 12},
		"no message":                {path: path, content: "", status: 3},
		"truncated message":         {path: path, content: "\x00\x00\x00\x00\x09\n", status: 3},
		"two messages":              {path: path, content: grpcMessage("") + grpcMessage(""), status: 3},
		"malformed message":         {path: path, content: grpcMessage("\n\x05a"), status: 3},
		"message too long":          {path: path, content: "\x00\x00\x00\x20\x00" + strings.Repeat("x", 8<<10), status: 3},
	} {
		t.Run(name, func(t *testing.T) {
			f, counts := filtertest.Build(t, Factory(), `{"grpc": true, "grpc_services": ["shop.Items"]}`)
			x := newGRPCHealthCheck(test.path, test.content)
			x.Meta.Conn = &protocol.ConnMeta{DownstreamConn: fakeConn{draining: test.draining}}
			if err := x.Serve(t.Context(), f(application())); err != nil {
				t.Fatal(err)
			}
			var content []byte
			if x.Response.Body != nil {
				content, _ = io.ReadAll(x.Response.Body) // a string body returns no error
			}
			status := protocol.GRPCStatus(&x.Response)
			if x.Response.Status != 200 || status != test.status || string(content) != test.want || !protocol.IsGRPC(&x.Response.Header) {
				t.Errorf("%d, status %d, %q, %q; want status %d, %q", x.Response.Status, status, content, x.Response.Header.Get("content-type"), test.status, test.want)
			}
			if trailersOnly := x.Response.Header.Get("grpc-status") != ""; trailersOnly != (test.want == "") {
				t.Errorf("trailers-only response: %t, want %t", trailersOnly, test.want == "")
			}
			if n := counts.Value(respondedMetric()); n != 1 {
				t.Errorf("counter = %v, want 1", n)
			}
		})
	}
}

func TestOtherGRPCRequestsAreForwarded(t *testing.T) {
	const path = "/grpc.health.v1.Health/Check"
	for name, test := range map[string]struct {
		settings filtertest.Settings
		change   func(x *protocol.Exchange)
	}{
		"not configured": {settings: `{"endpoint": "/healthz"}`},
		"other service":  {change: func(x *protocol.Exchange) { x.Request.Path = "/shop.Items/Check" }},
		"other version":  {change: func(x *protocol.Exchange) { x.Request.Path = "/grpc.health.v2.Health/Check" }},
		"not gRPC":       {change: func(x *protocol.Exchange) { x.Request.Header.Set("content-type", "application/json") }},
		"not HTTP/2":     {change: func(x *protocol.Exchange) { x.Meta.Protocol = "Http1" }},
		"GET":            {change: func(x *protocol.Exchange) { x.Request.Method = "GET" }},
		"RPC":            {change: func(x *protocol.Exchange) { x.Request.Method = "" }},
		"empty path":     {change: func(x *protocol.Exchange) { x.Request.Path = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			settings := test.settings
			if settings == "" {
				settings = `{"grpc": true}`
			}
			f, counts := filtertest.Build(t, Factory(), settings)
			x := newGRPCHealthCheck(path, grpcMessage(""))
			if test.change != nil {
				test.change(x)
			}
			if err := x.Serve(t.Context(), f(application())); err != nil || x.Response.Status != 404 || counts.Value(respondedMetric()) != 0 {
				t.Errorf("%v, %d, %v counted; want the response of the application", err, x.Response.Status, counts.Value(respondedMetric()))
			}
		})
	}
}

// truncatedBody is a body that ends early.
type truncatedBody struct{ *protocol.StringBody }

var errTruncated = protocol.NewFault(protocol.ReasonDownstreamDisconnect, io.ErrUnexpectedEOF)

func (truncatedBody) Read([]byte) (int, error) { return 0, errTruncated }

func TestTruncatedHealthCheckFails(t *testing.T) {
	f, _ := filtertest.Build(t, Factory(), `{"grpc": true}`)
	x := newGRPCHealthCheck("/grpc.health.v1.Health/Check", "")
	x.Request.Body = truncatedBody{}
	if err := x.Serve(context.Background(), f(application())); !errors.Is(err, errTruncated) {
		t.Errorf("Serve = %v, want %v", err, errTruncated)
	}
}

func FuzzParseRequest(f *testing.F) {
	for _, sample := range []string{"", "\n\x00", "\n\x03abc", "\n\x01a\n\x01b", "\x10\x01\n\x01a", "\x11abcdefgh", "\x15abcd", "\n\x05a", "\x00", "\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		f.Add([]byte(sample))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		service, ok := parseRequest(b)
		if !ok && service != "" || len(service) > len(b) {
			t.Fatalf("parseRequest(%q) = %q, %t, want no service if malformed, and none longer than the input", b, service, ok)
		}
		// A second name after a valid message replaces the first.
		extended, extendedOK := parseRequest(append(b[:len(b):len(b)], "\n\x01z"...))
		if ok && (!extendedOK || extended != "z") {
			t.Fatalf("parseRequest(%q and z) = %q, %t, want z, true", b, extended, extendedOK)
		}
	})
}
