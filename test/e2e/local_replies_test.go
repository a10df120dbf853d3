package e2e

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// secrets are headers of every request. No local reply may contain any of them.
const secrets = "Host: secret-host.example\nAuthorization: Bearer secret-token\nCookie: session=secret-cookie\nX-Api-Key: secret-key\n" +
	"Proxy-Authorization: Basic secret-proxy\nContent-Language: secret-language\n"

// TestLocalRepliesLeakNoRequestData verifies that no local reply contains data of the request.
func TestLocalRepliesLeakNoRequestData(t *testing.T) {
	t.Parallel()
	closing := startTCPServer(t, func(c net.Conn) { _, _, _ = readRequest(bufio.NewReader(c)) })
	garbage := startTCPServer(t, func(c net.Conn) {
		_, _, _ = readRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "secret-garbage\r\n\r\n")
	})
	silent := startHoldingUpstream(t)
	front := freeAddress()
	startWeft(t, setup{
		listeners: list{httpListenerWith("front", front, object{
			"max_request_body_size": 1000, "max_header_size": 2000, "max_request_line_size": 1000,
			"head_timeout": "200ms", "body_timeout": "200ms",
		}, object{"stream_filters": list{streamFilter("payload_limit", object{"max_entity_size": 500}), streamFilter("fault", object{})}})},
		tables: list{routeTable("front",
			directRoute("/direct", 200, "hello"),
			object{"match": object{"prefix": "/redirect"}, "redirect": object{"response_code": 302, "host_redirect": "other.example", "path_redirect": "/there"}},
			routeTo("/dead", "dead"), routeTo("/closes", "closes"), routeTo("/garbage", "garbage"), routeTo("/empty", "empty"),
			routeTo("/full", "full", object{"timeout": "0s"}), routeTo("/silent", "silent", object{"timeout": "200ms"}),
			routeWithFilter("/fault", "fault", object{"abort": object{"status": 500, "percentage": 100}}).with(object{"route": object{"cluster_name": "silent"}}),
			object{"match": object{"prefix": "/variable"}, "route": object{"cluster_variable": "request_header_x-api-key"}},
		)},
		clusters: list{
			cluster("dead", nil, "127.0.0.1:1"), cluster("closes", nil, closing), cluster("garbage", nil, garbage), cluster("empty", nil),
			cluster("full", object{"circuit_breakers": list{object{"max_requests": 1}}}, silent.address), cluster("silent", nil, silent.address),
		},
	}.config())
	dialRaw(t, front).send("GET /full HTTP/1.1\nHost: a\n\n")
	silent.await(t)

	big := strings.Repeat("x", 2000)
	for _, c := range []struct {
		name, send string
		status     int
	}{
		{"direct response", "GET /direct?q=secret-query HTTP/1.1\n" + secrets + "\n", 200},
		{"redirect", "GET /redirect?q=1 HTTP/1.1\n" + secrets + "\n", 302},
		{"no route", "GET /secret-path HTTP/1.1\n" + secrets + "\n", 404},
		{"no cluster", "GET /variable HTTP/1.1\n" + secrets + "\n", 404},
		{"no host", "GET /empty HTTP/1.1\n" + secrets + "\n", 502},
		{"connect failure", "GET /dead HTTP/1.1\n" + secrets + "\n", 502},
		{"upstream closed", "POST /closes HTTP/1.1\n" + secrets + "Content-Length: 14\n\nsecret-content", 502},
		{"upstream malformed", "GET /garbage HTTP/1.1\n" + secrets + "\n", 502},
		{"upstream timeout", "GET /silent HTTP/1.1\n" + secrets + "\n", 504},
		{"overflow", "GET /full HTTP/1.1\n" + secrets + "\n", 503},
		{"fault", "GET /fault HTTP/1.1\n" + secrets + "\n", 500},
		{"payload limit", "POST /dead HTTP/1.1\n" + secrets + "Content-Length: 600\n\nsecret-content" + big[:586], 413},
		{"large body", "POST /dead HTTP/1.1\n" + secrets + "Content-Length: 2000\n\n" + big, 413},
		{"large headers", "GET /direct HTTP/1.1\n" + secrets + "X: " + big + "\n\n", 431},
		{"long target", "GET /direct?secret-query" + big + " HTTP/1.1\n" + secrets + "\n", 414},
		{"malformed head", "GET /direct HTTP/1.1\n" + secrets + "secret line\n\n", 400},
		{"invalid method", "se(cret-method / HTTP/1.1\n" + secrets + "\n", 400},
		{"two hosts", "GET /direct HTTP/1.1\n" + secrets + "Host: secret-other\n\n", 400},
		{"invalid length", "POST /direct HTTP/1.1\n" + secrets + "Content-Length: secret-length\n\n", 400},
		{"unknown coding", "POST /direct HTTP/1.1\n" + secrets + "Transfer-Encoding: secret-coding, chunked\n\n", 501},
		{"unsupported version", "GET /direct HTTP/2.7\n" + secrets + "\n", 505},
		{"slow headers", "GET /direct HTTP/1.1\n" + secrets, 408},
		{"slow body", "POST /closes HTTP/1.1\n" + secrets + "Content-Length: 20\n\nsecret-content", 408},
		{"CONNECT", "CONNECT secret-host.example:443 HTTP/1.1\n" + secrets + "\n", 405},
		{"unknown expectation", "POST /direct HTTP/1.1\n" + secrets + "Expect: secret-expectation\nContent-Length: 0\n\n", 417},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client := dialRaw(t, front).send(c.send)
			first, err := client.r.Peek(1)
			if err != nil {
				t.Fatalf("no response: %q, %v", first, err)
			}
			response, body := client.readResponse(c.send[:strings.IndexByte(c.send, ' ')])
			if response.StatusCode != c.status {
				t.Errorf("status %d, want %d", response.StatusCode, c.status)
			}
			var head strings.Builder
			_ = response.Header.Write(&head) // writes to memory do not fail
			if raw := response.Status + "\n" + head.String() + body; strings.Contains(raw, "secret") {
				t.Errorf("the response contains request data:\n%s", raw)
			}
			checkLocalReplyHeaders(t, response, body)
		})
	}
}

// checkLocalReplyHeaders checks that a local reply has the expected headers and no others.
func checkLocalReplyHeaders(t *testing.T, response *http.Response, body string) {
	t.Helper()
	for name := range response.Header {
		if name == "X-Envoy-Overloaded" && body == "circuit breaker open\n" {
			continue
		}
		if !slices.Contains([]string{"Date", "Content-Type", "Content-Length", "Connection", "Location", "Allow"}, name) {
			t.Errorf("the response has the header %s, want only headers of local replies", name)
		}
	}
	if response.Header.Get("Date") == "" {
		t.Error("the response has no Date (RFC 9110 6.6.1)")
	}
	if n := response.Header.Get("Content-Length"); n != strconv.Itoa(len(body)) {
		t.Errorf("Content-Length %s, body of %d bytes; want equal lengths", n, len(body))
	}
}
