package cases

import (
	"strings"
	"time"
)

// message is a gRPC message with 3 bytes.
const message = "\x00\x00\x00\x00\x03abc"

// call returns the options of a gRPC call.
func call(options ...option) []option {
	return append([]option{
		method("POST"), path("/pkg.Service/Method"), field("content-type", "application/grpc"), field("te", "trailers"), body(message),
	}, options...)
}

// grpc adds gRPC calls to hosts with HTTP/2 and with HTTP/1.1.
func (s *set) grpc() {
	const feature = "grpc"
	for _, name := range []string{"h1", "o1", "dead", "none"} {
		g := s.add(Group{Feature: feature, Routes: "- {match: {prefix: /}, route: {cluster: " + name + ", timeout: 0.5s}}"})
		add := func(text string, options ...option) { g.h2(append(call(options...), label(name+" "+text))...) }
		add("unary")
		add("unary with metadata", field("x-meta", "1"), field("x-bin-bin", "AAEC"), field("x-o-h", "x-initial: 1"))
		add("trailers", field("x-o-trailers", "grpc-status=0,grpc-message=ok,x-t=1"))
		add("an error in trailers", field("x-o-trailers", "grpc-status=5,grpc-message=not%20found"))
		add("trailers only", field("x-o-trailersonly", "7"))
		add("an HTTP error", field("x-o-status", "503"), field("x-o-noct", "1"))
		add("a delay above the timeout", field("x-o-delay", "900"))
		add("a deadline", field("grpc-timeout", "200m"), field("x-o-delay", "350"))
		add("reset", field("x-o-seq", "reset"))
		add("refused", field("x-o-seq", "reset"), field("x-o-refused", "1"))
		add("an empty message", body("\x00\x00\x00\x00\x00"))
		add("no message", body(""))
		add("a large message", body("\x00\x00\x01\x86\xa0"+strings.Repeat("x", 100_000)))
		add("a large response", field("x-o-len", "100000"), bodyLength())
		g.get("/pkg.Service/Method", method("POST"), field("content-type", "application/grpc"), body(message), label(name+" over HTTP/1.1"))
		g.h2(path("/pkg.Service/Method"), field("content-type", "application/grpc"), label(name+" GET"))
		for _, contentType := range []string{"application/grpc+proto", "application/grpc-web", "application/grpc;charset=x", "application/grpcx"} {
			g.h2(append(call(label(name+" "+contentType)), func(c *Case) { c.Fields[0].Value = contentType })...)
		}
	}
	s.grpcStreams()
}

// grpcStreams adds calls whose messages travel one by one.
func (s *set) grpcStreams() {
	g := s.add(Group{Feature: "grpc.stream", Routes: "- {match: {prefix: /}, route: {cluster: h1, timeout: 0s}}"})
	fields := []string{
		":method", "POST", ":scheme", "http", ":path", "/pkg.Service/Stream", ":authority", "a.test", "x-case", "{case}",
		"content-type", "application/grpc", "te", "trailers", "x-o-stream", "1",
	}
	add := func(name string, send func(*w), options ...option) {
		g.frames(name, func(f *w) {
			f.Settings()
			send(f)
		}, options...)
	}
	add("three messages", func(f *w) {
		f.Headers(1, false, fields...)
		for range 3 {
			f.Data(1, false, message)
			f.Pause(pause)
		}
		f.Data(1, true, "")
	})
	add("the client resets", func(f *w) {
		f.Headers(1, false, fields...)
		f.Data(1, false, message)
		f.Pause(pause)
		f.Frame(3, 0, 1, "\x00\x00\x00\x08")
		f.Pause(pause)
	})
	add("the client does not end", func(f *w) {
		f.Headers(1, false, fields...)
		f.Data(1, false, message)
	}, closeWait(400*time.Millisecond))
	add("two streams", func(f *w) {
		f.Headers(1, false, fields...)
		f.Headers(3, false, fields...)
		f.Data(1, false, message)
		f.Pause(pause)
		f.Data(3, true, message)
		f.Pause(pause)
		f.Data(1, true, message)
	}, sorted())
	add("a status of the host", func(f *w) {
		f.Headers(1, false, append(fields, "x-o-trailers", "grpc-status=13")...)
		f.Data(1, false, message)
		f.Pause(pause)
		f.Data(1, true, "")
	})
}
