package conformance

import (
	"regexp"
	"strings"
)

// Messages that most scripts use.
const (
	get           = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	okResponse    = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nok"
	emptyResponse = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 0\r\n\r\n"
	responseStart = "HTTP/1.1 200 OK\r\nDate: d\r\n" // the beginning of a response
	requestStart  = "GET / HTTP/1.1\r\nHost: h\r\n"  // the beginning of a request
)

// requestPasses returns a script in which the request reaches the origin unchanged and gets a
// response.
func requestPasses(request string) script { return requestBecomes(request, request) }

// requestBecomes returns a script in which the origin receives request as `received` and sends a
// response.
func requestBecomes(request, received string) script {
	return script{clientSends(request), originReceives(received), originSends(okResponse), clientReceives(okResponse), carriesNextExchange}
}

// responsePasses returns a script in which the response reaches the client unchanged.
func responsePasses(response string) script { return responseBecomes(response, response) }

// responseBecomes returns a script in which the client receives response as `received`.
func responseBecomes(response, received string) script {
	return script{clientSends(get), originReceives(get), originSends(response), clientReceives(received), carriesNextExchange}
}

// concat concatenates scripts, which run on the same connections.
func concat(scripts ...script) script {
	var out script
	for _, s := range scripts {
		out = append(out, s...)
	}
	return out
}

func messageCases() []ruleCase {
	const obsText = "\x80\xa7\xff"
	return []ruleCase{
		{
			name: "a request and its response are forwarded unchanged", rfc: "9110 7.6",
			script: concat(requestPasses("GET /a HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n"), responsePasses(okResponse)),
		},
		{
			name: "fields of a request keep order, case and repetition", rfc: "9110 5.3",
			script: requestPasses("GET / HTTP/1.1\r\nHost: h\r\nx-LOWER: 1\r\nX-Upper: a\r\nx-lower: 2\r\ncookie: a=b\r\nCookie: c=d\r\n\r\n"),
		},
		{
			name: "fields of a response keep order, case and repetition", rfc: "9110 5.3",
			script: responsePasses("HTTP/1.1 200 OK\r\ndate: d\r\nSet-Cookie: a=1\r\nx-ODD: 1\r\nset-cookie: b=2\r\nX-Odd: 2\r\nContent-Length: 2\r\n\r\nok"),
		},
		{
			name: "percent-encoding, dot segments and empty segments are kept", rfc: "9112 3.2.1",
			script: requestPasses("GET /a%2Fb//%7euser/.././c;p=1/%00?q=%20%41&r=a/../b? HTTP/1.1\r\nHost: h\r\n\r\n"),
		},
		{
			name: "unusual visible bytes of a target are kept", rfc: "9112 3.2",
			script: requestPasses("GET /a|b\"<c>^`{d}\\[e]?|[] HTTP/1.1\r\nHost: h\r\n\r\n"),
		},
		{
			name: "whitespace around a value is removed", rfc: "9112 5.1",
			script: requestBecomes("GET / HTTP/1.1\r\nHost: \t h \t\r\nX-A:  \ta \t b\t \r\nX-B:c\r\nX-C:\r\nX-D: \t \r\n\r\n",
				"GET / HTTP/1.1\r\nHost: h\r\nX-A: a \t b\r\nX-B: c\r\nX-C: \r\nX-D: \r\n\r\n"),
		},
		{
			name: "bytes above ASCII in values are forwarded in both directions", rfc: "9110 5.5",
			script: concat(requestPasses("GET / HTTP/1.1\r\nHost: h\r\nX-A: "+obsText+"\r\n\r\n"),
				responsePasses("HTTP/1.1 200 OK\r\nDate: d\r\nX-A: "+obsText+"\r\nContent-Length: 0\r\n\r\n")),
		},
		{
			name: "a field name may have every token character", rfc: "9110 5.1",
			script: requestPasses("GET / HTTP/1.1\r\nHost: h\r\n!#$%&'*+-.^_`|~09azAZ: 1\r\n\r\n"),
		},
		{
			name: "a name with an underscore is not a framing field", rfc: "9110 5.1",
			script: requestPasses("POST / HTTP/1.1\r\nHost: h\r\nTransfer_Encoding: chunked\r\nContent_Length: 9\r\nContent-Length: 2\r\n\r\nhi"),
		},
		{
			name: "the reason phrase may be missing or arbitrary", rfc: "9112 4",
			script: concat(
				responseBecomes("HTTP/1.1 200\r\nDate: d\r\nContent-Length: 0\r\n\r\n", emptyResponse),
				responseBecomes("HTTP/1.1 200 \r\nDate: d\r\nContent-Length: 0\r\n\r\n", emptyResponse),
				responseBecomes("HTTP/1.1 200 "+obsText+"\tso so\r\nDate: d\r\nContent-Length: 0\r\n\r\n", emptyResponse)),
		},
		{
			name: "an unknown status is kept", rfc: "9110 15",
			script: script{clientSends(get), originReceives(get), originSends("HTTP/1.1 499 Odd\r\nDate: d\r\nContent-Length: 0\r\n\r\n"),
				clientReceives("HTTP/1.1 499 "), clientReceivesLine, clientReceives("Date: d\r\nContent-Length: 0\r\n\r\n"), carriesNextExchange},
		},
		{
			name: "a response without Date gets one", rfc: "9110 6.6.1",
			script: script{clientSends(get), originReceives(get), originSends("HTTP/1.1 200 OK\r\nX-A: 1\r\nContent-Length: 0\r\n\r\n"),
				clientReceives("HTTP/1.1 200 OK\r\nX-A: 1\r\nDate: "), clientReceivesLine, clientReceives("Content-Length: 0\r\n\r\n"), carriesNextExchange},
		},
		{
			name: "an empty line before a request is skipped", rfc: "9112 2.2",
			script: requestBecomes("\r\n"+get, get),
		},
		{
			name: "a GET may have a body", rfc: "9110 9.3.1",
			script: requestPasses("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"),
		},
		{
			name: "a body that looks like a request is not a request", rfc: "9112 6.3",
			script: requestPasses("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 38\r\n\r\nGET /admin HTTP/1.1\r\nHost: inner\r\n\r\n\r\n"),
		},
		{
			name: "a body with every byte value is forwarded in both directions", rfc: "9110 6.4",
			script: concat(
				requestPasses("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 256\r\n\r\n"+everyByte()),
				responsePasses(responseStart+"Content-Length: 256\r\n\r\n"+everyByte())),
		},
		{
			name: "a large body with Content-Length is forwarded in both directions", rfc: "9112 6.2", wholeWritesOnly: true,
			script: concat(
				requestPasses("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 131072\r\n\r\n"+strings.Repeat(everyByte(), 512)),
				responsePasses(responseStart+"Content-Length: 131072\r\n\r\n"+strings.Repeat(everyByte(), 512))),
		},
		{
			name: "a local reply has no data of the request", rfc: "9110 15.5", setup: func(s *setup) { s.extra = append(s.extra, direct("/local", 404, "no")) },
			script: script{clientSends("GET /local HTTP/1.1\r\nHost: h\r\nAuthorization: secret\r\nCookie: a=b\r\nX-A: 1\r\n\r\n"), localReplyKeepAlive(404), carriesNextExchange},
		},
		{
			name: "a rejection has no data of the request", rfc: "9110 15.5",
			script: script{clientSends("GET / HTTP/1.1\r\nHost: h\r\nAuthorization: secret\r\nCookie: a=b\r\nX-A : 1\r\n\r\n"), rejected(400)},
		},
	}
}

// clientReceivesLine reads a line at the client, which may contain any printable characters.
func clientReceivesLine(h *harness) {
	h.Helper()
	var line []byte
	buf := make([]byte, 1)
	for !strings.HasSuffix(string(line), "\r\n") {
		if _, err := h.ensureClient().Read(buf); err != nil {
			h.Fatalf("the client got %q, then %v, want a line", line, err)
		}
		line = append(line, buf[0])
	}
	if !regexp.MustCompile(`^[ -~]*\r\n$`).Match(line) {
		h.Fatalf("the client got %q, want a line of printable characters", line)
	}
}

func everyByte() string {
	out := make([]byte, 256)
	for i := range out {
		out[i] = byte(i)
	}
	return string(out)
}

func connectionFieldCases() []ruleCase {
	return []ruleCase{
		{
			name: "connection-specific fields of a request are not forwarded", rfc: "9110 7.6.1",
			script: requestBecomes("GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n"+
				"TE: trailers, deflate;q=0.5\r\nX-A: 1\r\nUpgrade: foo\r\n\r\n",
				"GET / HTTP/1.1\r\nHost: h\r\nX-A: 1\r\n\r\n"),
		},
		{
			name: "connection-specific fields of a response are not forwarded", rfc: "9110 7.6.1",
			script: responseBecomes(responseStart+"Connection: keep-alive\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nUpgrade: foo\r\nX-A: 1\r\nContent-Length: 0\r\n\r\n",
				responseStart+"X-A: 1\r\nContent-Length: 0\r\n\r\n"),
		},
		{
			name: "fields named in Connection are removed from a request", rfc: "9110 7.6.1",
			script: requestBecomes("GET / HTTP/1.1\r\nX-a: 1\r\nHost: h\r\nConnection: X-A, keep-alive ,x-b\r\nX-B: 1\r\nX-C: 1\r\nx-A: 2\r\nCONNECTION: x-D\r\nx-d: 1\r\n\r\n",
				"GET / HTTP/1.1\r\nHost: h\r\nX-C: 1\r\n\r\n"),
		},
		{
			name: "fields named in Connection are removed from a response", rfc: "9110 7.6.1",
			script: responseBecomes(responseStart+"x-A: 2\r\nConnection: X-A,,\t, x-b\r\nX-B: 1\r\nX-C: 1\r\nContent-Length: 0\r\n\r\n",
				responseStart+"X-C: 1\r\nContent-Length: 0\r\n\r\n"),
		},
		{
			name: "fields named in Connection are removed from an interim response", rfc: "9110 7.6.1",
			script: responseBecomes("HTTP/1.1 103 Early Hints\r\nConnection: x-a\r\nX-A: 1\r\nKeep-Alive: 1\r\nLink: </a>\r\n\r\n"+okResponse,
				"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"+okResponse),
		},
		{
			name: "Host named in Connection is kept", rfc: "9110 7.6.1",
			script: requestBecomes("GET / HTTP/1.1\r\nHost: h\r\nConnection: host\r\n\r\n", get),
		},
		{
			name: "Content-Length named in Connection keeps the framing", rfc: "9112 6.3",
			script: requestBecomes("POST / HTTP/1.1\r\nHost: h\r\nConnection: content-length, transfer-encoding\r\nContent-Length: 2\r\n\r\nhi",
				"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"),
		},
		{
			name: "Transfer-Encoding named in Connection keeps the framing", rfc: "9112 6.3",
			script: script{clientSends("POST / HTTP/1.1\r\nHost: h\r\nConnection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
				originReceivesChunked("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", "hi", ""), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "credentials named in Connection are removed", rfc: "9110 7.6.1",
			script: requestBecomes("GET / HTTP/1.1\r\nHost: h\r\nAuthorization: a\r\nConnection: authorization\r\n\r\n", get),
		},
		{
			name: "a connection option that is not a token is rejected", rfc: "9110 7.6.1",
			script: script{clientSends(requestStart + "Connection: x y\r\n\r\n"), rejected(400)},
		},
		{
			name: "proxy credentials are forwarded", rfc: "9110 11.7",
			script: script{clientSends(requestStart + "Proxy-Authorization: a\r\n\r\n"), originReceives(requestStart + "Proxy-Authorization: a\r\n\r\n"), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "close from the client is not forwarded and ends only the client connection", rfc: "9112 9.6",
			script: script{clientSends(requestStart + "Connection: close\r\n\r\n"), originReceives(get), originSends(okResponse),
				clientReceives("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"), clientClosed, carriesNextExchange},
		},
		{
			name: "close from the origin is not forwarded and ends only the origin connection", rfc: "9112 9.6",
			script: script{clientSends(get), originReceives(get), originSends(responseStart + "Connection: close\r\nContent-Length: 2\r\n\r\nok"), clientReceives(okResponse), originClosed, carriesNextExchange},
		},
		{
			name: "bytes after a request with close are not read as a request", rfc: "9112 9.6", wholeWritesOnly: true,
			script: script{clientSends(requestStart + "Connection: close\r\n\r\n" + get), originReceives(get), originSends(okResponse),
				clientReceives("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"), clientClosed, originUntouched},
		},
		{
			name: "HTTP2-Settings is not forwarded", rfc: "7540 3.2.1",
			script: requestBecomes(requestStart+"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", get),
		},
	}
}
