package cases

import (
	"slices"
	"strings"
	"time"

	"github.com/weft-proxy/weft/test/envoy/client"
)

// http1Syntax adds requests that are unusual or malformed. They share one group with the responses
// of http1Upstream.
func (s *set) http1Syntax() {
	g := s.add(Group{Feature: "http1"})
	for _, data := range slices.Concat(requestLines(), framings(), targetsAndFields()) {
		name := "GET"
		if strings.HasPrefix(data, "HEAD") {
			name = "HEAD"
		}
		options := []option{method(name), timeout(2 * time.Second)}
		if strings.Contains(data, "\r\n\r\nzz\r\n") {
			options = append(options, responseOnly()) // the head is valid, and may be forwarded
		}
		g.raw(data, options...)
	}
	g.parts([]client.Part{{Data: []byte(plainRequest + plainRequest)}}, responses(2), label("pipeline of two"))
	g.parts([]client.Part{
		{Data: []byte(plainRequest[:10])}, {Data: []byte(plainRequest[10:]), Pause: 50 * time.Millisecond},
	}, label("split request"))
	g.http1Upstream()
}

// http1Upstream adds requests whose responses are unusual.
func (g *Group) http1Upstream() {
	g.get("/", field("Expect", "100-continue"), method("POST"), body("abc"), label("Expect with body"))
	for _, v := range []struct {
		name    string
		options []option
	}{
		{"103 early hints", []option{field("x-o-early", "1")}},
		{"upstream Connection: close", []option{field("x-o-close", "1")}},
		{"body until close", []option{field("x-o-untilclose", "1")}},
		{"chunked", []option{field("x-o-chunked", "1")}},
		{"response trailers", []option{field("x-o-trailers", "x-t=1")}},
		{"upstream cut in content-length", []option{field("x-o-len", "100"), field("x-o-cut", "10")}},
		{"upstream cut in chunks", []option{field("x-o-len", "100"), field("x-o-cut", "10"), field("x-o-chunked", "1")}},
		{"upstream reset", []option{field("x-o-seq", "reset")}},
		{"upstream closes", []option{field("x-o-seq", "close")}},
	} {
		g.get("/", append(v.options, label(v.name))...)
	}
	for _, status := range []string{"204", "304", "205", "299", "100", "404", "500"} {
		g.get("/", field("x-o-status", status), label("status "+status))
	}
	for _, f := range []string{
		"Connection: x-y|X-Y: 1", "Keep-Alive: 5", "Content-Length: 5", "X: \xff", "Set-Cookie: a=1|Set-Cookie: b=2",
		"Upgrade: x", "Transfer-Encoding: gzip", "Proxy-Authenticate: x", "Date: Mon, 01 Jan 2001 00:00:00 GMT",
		"x-envoy-overloaded: 1", "x-envoy-immediate-health-check-fail: 1", "x-envoy-upstream-service-time: 99",
		"X_Under: 1", "content-type: ", "x-envoy-upstream-canary: true", "x-envoy-degraded: 1", "x-envoy-ratelimited: 1",
	} {
		g.get("/", field("x-o-h", f), labelf("answer has %s", f), ignored("x-o-h"))
	}
	g.get("/", field("x-o-status", "200"), method("HEAD"), label("HEAD"))
	g.get("/", field("x-o-chunked", "1"), method("HEAD"), label("HEAD chunked"))
}

// requestLines returns requests with unusual request lines, versions, hosts and line ends.
func requestLines() []string {
	return []string{
		"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET / HTTP/1.0\r\n\r\n",
		"GET / HTTP/1.0\r\nHost: a.test\r\n\r\n",
		"GET / HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\n\r\n",
		"GET / HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n",
		"GET / HTTP/1.1\r\nHost : a.test\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\n x: folded\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nX: a\r\n b\r\n\r\n",
		"GET  / HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET / HTTP/2.0\r\nHost: a.test\r\n\r\n",
		"GET / HTTP/1.2\r\nHost: a.test\r\n\r\n",
		"GET /\r\n\r\n",
		"get / HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"PURGE / HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"G@T / HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET / HTTP/1.1\nHost: a.test\n\n",
		"\r\n\r\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
	}
}

// framings returns requests with different framings of the body, and unusual methods.
func framings() []string {
	return []string{
		"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
		"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: +3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3, 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: x\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n0\r\nX-T: 1\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
		"POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nhi",
		"HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"TRACE / HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"DELETE / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n",
	}
}

// targetsAndFields returns requests with unusual targets and fields.
func targetsAndFields() []string {
	return []string{
		"GET http://b.test/x?y HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET https://b.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET http://b.test HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET ftp://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET x HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nTE: trailers\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: x-drop\r\nX-Drop: 1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\nUpgrade: foo\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nExpect: other\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nX\x01: 1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nX: \x01\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nX: \xff\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nX:\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\n: v\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nX\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: user@a.test\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nX-A: 1\r\nx-a: 2\r\nX-a:   3  \r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nCookie: a=b\r\nCookie: c=d\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test:99999\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test:x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost:a.test\r\nX\t: 1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
	}
}
