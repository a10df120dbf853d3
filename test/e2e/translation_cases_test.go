package e2e

import "strings"

// get1 and get2 are a plain request in HTTP/1.1 and HTTP/2.
const (
	get1 = "GET /t HTTP/1.1\nHost: shop.test\n"
	get2 = ":method: GET"
)

// requestTranslations returns requests that Weft forwards.
func requestTranslations() []translation {
	const plain = "GET /t shop.test"
	return []translation{
		{name: "headers", http1: get1 + "X-One: 1\nx-two: 2\n\n", http2: "x-one: 1\nx-two: 2", upstreamWant: plain + "\nx-one: 1\nx-two: 2"},
		{name: "unchanged target", http1: "GET /a%2Fb;c?d=%41&e HTTP/1.1\nHost: Shop.Test:80\n\n", http2: ":path: /a%2Fb;c?d=%41&e\n:authority: Shop.Test:80",
			upstreamWant: "GET /a%2Fb;c?d=%41&e Shop.Test:80"},
		{name: "merged cookies", http1: get1 + "Cookie: a=1; b=2; c=3\nX-One: 1\n\n", http2: "cookie: a=1\nx-one: 1\ncookie: b=2; c=3", // RFC 9113 8.2.3
			upstreamWant: plain + "\ncookie: a=1; b=2; c=3\nx-one: 1"},
		{name: "TE is hop-by-hop", http1: get1 + "TE: trailers, gzip\nConnection: TE\n\n", upstreamWant: plain, upstreamWant2: plain + "\nte: trailers"}, // RFC 9110 10.1.4, 9113 8.2.2
		{name: "TE: trailers", http2: "te: trailers", upstreamWant: plain, upstreamWant2: plain + "\nte: trailers"},
		{name: "hop-by-hop request headers", http1: get1 + "Connection: x-hop, keep-alive\nX-Hop: 1\nKeep-Alive: timeout=5\nProxy-Connection: keep-alive\nX-Two: 2\n\n", // RFC 9110 7.6.1
			upstreamWant: plain + "\nx-two: 2"},
		{name: "host in the absolute form", http1: "GET http://shop.test/t HTTP/1.1\nHost: other.test\n\n", upstreamWant: plain}, // RFC 9112 3.2.2
		{name: "Host with the same authority", http2: "host: shop.test", upstreamWant: plain},                                    // RFC 9113 8.3.1
		{name: "Host without authority", http2: "-:authority: \nhost: shop.test", upstreamWant: plain},                           // RFC 9113 8.3.1
		{name: "body with Content-Length", http1: "POST /t HTTP/1.1\nHost: shop.test\nContent-Length: 5\n\nhello", http2: ":method: POST\ncontent-length: 5\n\nhello",
			upstreamWant: "POST /t shop.test\ncontent-length: 5\n\nhello"},
		{name: "chunked body with trailers", http1: "POST /t HTTP/1.1\nHost: shop.test\nTransfer-Encoding: chunked\n\n2\nhe\n3\nllo\n0\nX-Sum: 5\n\n",
			http2: ":method: POST\n\nhello\n\nx-sum: 5", upstreamWant: "POST /t shop.test\n\nhello\n\nx-sum: 5"},
		{name: "empty body", http1: "POST /t HTTP/1.1\nHost: shop.test\nContent-Length: 0\n\n", http2: ":method: POST\ncontent-length: 0\n\n",
			upstreamWant: "POST /t shop.test\ncontent-length: 0"},
		{name: "no body", http1: "DELETE /t HTTP/1.1\nHost: shop.test\n\n", http2: ":method: DELETE", upstreamWant: "DELETE /t shop.test"},
	}
}

// rejectedRequests returns requests that Weft must reject.
func rejectedRequests() []translation {
	cases := []translation{
		{name: "two Content-Length headers", http1: "POST /t HTTP/1.1\nHost: shop.test\nContent-Length: 5\nContent-Length: 5\n\nhello", http2: ":method: POST\ncontent-length: 5\ncontent-length: 5\n\nhello"},
		{name: "Content-Length and chunks", http1: "POST /t HTTP/1.1\nHost: shop.test\nContent-Length: 5\nTransfer-Encoding: chunked\n\n0\n\n", http2: ":method: POST\ncontent-length: 5\ntransfer-encoding: chunked\n\nhello"},
		{name: "body shorter than Content-Length", http1: "POST /t HTTP/1.1\nHost: shop.test\nContent-Length: 5\n\nhel" + closeMark, http2: ":method: POST\ncontent-length: 5\n\nhel"},
		{name: "body longer than Content-Length", http2: ":method: POST\ncontent-length: 5\n\nhello!"},
		{name: "Content-Length without body", http2: ":method: POST\ncontent-length: 5"},
		{name: "body shorter than Content-Length, with trailers", http2: ":method: POST\ncontent-length: 5\n\nhel\n\nx-sum: 5"},
		{name: "invalid length", http1: "POST /t HTTP/1.1\nHost: shop.test\nContent-Length: +5\n\nhello", http2: ":method: POST\ncontent-length: +5\n\nhello"},
		{name: "two hosts", http1: get1 + "Host: other.test\n\n", http2: "-:authority: \nhost: shop.test\nhost: other.test"},
		{name: "Host with another authority", http2: "host: other.test"},
		{name: "no host", http1: "GET /t HTTP/1.1\n\n", http2: "-:authority: \nx-one: 1"},
		{name: "invalid host", http1: "GET /t HTTP/1.1\nHost: shop.test/a\n\n", http2: ":authority: shop.test/a"},
		{name: "userinfo before the host", http1: "GET /t HTTP/1.1\nHost: me@shop.test\n\n", http2: ":authority: me@shop.test"}, // RFC 9113 8.3.1
		{name: "CRLF in a value", http1: get1 + "X-One: 1␊X-Two: 2\n\n", http2: "x-one: 1␍␊x-two: 2"},
		{name: "LF in a value", http1: get1 + "X-One: 1␊2\n\n", http2: "x-one: 1␊2"},
		{name: "CR in a value", http1: get1 + "X-One: 1␍2\n\n", http2: "x-one: 1␍2"},
		{name: "NUL in a value", http1: get1 + "X-One: 1␀2\n\n", http2: "x-one: 1␀2"},
		{name: "space before a value", http2: "x-one:  1"},
		{name: "space in a name", http1: get1 + "X One: 1\n\n", http2: "x one: 1"},
		{name: "upper case name", http2: "X-One: 1"},
		{name: "folded line", http1: get1 + "X-One: 1\n 2\n\n"},
		{name: "CRLF in the path", http1: "GET /t␊X: 1 HTTP/1.1\nHost: shop.test\n\n", http2: ":path: /t HTTP/1.1␍␊X: 1"},
		{name: "space in the path", http1: "GET /t t HTTP/1.1\nHost: shop.test\n\n", http2: ":path: /t t"},
		{name: "fragment", http1: "GET /t#a HTTP/1.1\nHost: shop.test\n\n", http2: ":path: /t#a"},
		{name: "CRLF in the method", http2: ":method: GET / HTTP/1.1␍␊X: 1"},
		{name: "CRLF in the host", http2: ":authority: shop.test␍␊X: 1"},
		{name: "invalid scheme", http2: ":scheme: http␍␊X: 1"},
		{name: "no path", http2: "-:path: "},
		{name: ":status in a request", http2: ":status: 200"},
		{name: "pseudo-header after other headers", http2: "x-one: 1\n:protocol: websocket"},
		{name: "pseudo-header in trailers", http2: ":method: POST\n\nhello\n\n:path: /u"},
		{name: "TE other than trailers", http2: "te: gzip"},
	}
	for _, f := range []string{"connection: x-one", "keep-alive: timeout=5", "proxy-connection: keep-alive", "transfer-encoding: chunked", "upgrade: websocket"} {
		cases = append(cases, translation{name: "HTTP/1.1 connection header: " + f, http2: f}) // RFC 9113 8.2.2
	}
	for i := range cases {
		cases[i].clientWant1, cases[i].clientWant2 = "400", "(PROTOCOL_ERROR)"
		if strings.HasSuffix(cases[i].http1, closeMark) {
			cases[i].clientWant1 = "(end)" // a client that closes gets no response
		}
	}
	return cases
}

// responseTranslations returns responses, to requests that Weft forwards.
func responseTranslations() []translation {
	const forwarded = "GET /t shop.test"
	large := strings.Repeat("content ", 2000) // more than Weft buffers before the end of the body
	cases := []translation{
		{name: "response headers", response1: "HTTP/1.1 201 Created\nSet-Cookie: a=1\nX-One: 1\nSet-Cookie: b=2\nContent-Length: 0\n\n",
			response2: ":status: 201\nset-cookie: a=1\nx-one: 1\nset-cookie: b=2\ncontent-length: 0", clientWant: "201\ncontent-length: 0\nset-cookie: a=1\nset-cookie: b=2\nx-one: 1"},
		{name: "response trailers", response1: "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n5\nhello\n0\nX-Sum: 5\n\n",
			response2: ":status: 200\n\nhello\n\nx-sum: 5", clientWant: "200\n\nhello\n\nx-sum: 5"},
		{name: "body until the end of the connection", response1: "HTTP/1.1 200 OK\n\nhello" + closeMark, clientWant: "200\n\nhello"},
		{name: "hop-by-hop response headers", response1: "HTTP/1.1 200 OK\nConnection: x-hop, close\nX-Hop: 1\nKeep-Alive: timeout=5\nUpgrade: chat\nContent-Length: 2\n\nok" + closeMark},
		{name: "interim responses", response1: "HTTP/1.1 103 Early Hints\nLink: </a>\n\nHTTP/1.1 103 Early Hints\nLink: </b>\n\nHTTP/1.1 200 OK\nContent-Length: 2\n\nok",
			response2:  ":status: 103\nlink: </a>" + messageSeparator + ":status: 103\nlink: </b>" + messageSeparator + ":status: 200\ncontent-length: 2\n\nok",
			clientWant: "103\nlink: </a>" + messageSeparator + "103\nlink: </b>" + messageSeparator + "200\ncontent-length: 2\n\nok"},
		{name: "204", response1: "HTTP/1.1 204 No Content\n\n", response2: ":status: 204", clientWant: "204"},
		{name: "204 with Content-Length", response1: "HTTP/1.1 204 No Content\nContent-Length: 0\n\n", response2: ":status: 204\ncontent-length: 0", clientWant: "204"},
		{name: "304 with Content-Length", response1: "HTTP/1.1 304 Not Modified\nContent-Length: 5\n\n", response2: ":status: 304\ncontent-length: 5", clientWant: "304\ncontent-length: 5"},
		{name: "204 with body", response1: "HTTP/1.1 204 No Content\n\nhello" + closeMark, clientWant: "204"},
		{name: "304 with body", response1: "HTTP/1.1 304 Not Modified\nContent-Length: 5\n\nhello" + closeMark, clientWant: "304\ncontent-length: 5"},
		{name: "204 with DATA", response2: ":status: 204\n\nhello", clientWant: "204"},
		{name: "304 with DATA", response2: ":status: 304\n\nhello", clientWant: "304"},
		{name: "101 without an upgrade request", response1: "HTTP/1.1 101 Switching Protocols\nConnection: upgrade\nUpgrade: chat\n\n", response2: ":status: 101", clientWant: "502"},
		{name: "no status", response1: "HTTP/1.1 OK\n\n" + closeMark, response2: "x-one: 1", clientWant: "502"},
		{name: "CRLF in a response value", response1: "HTTP/1.1 200 OK\nX-One: 1␊X-Two: 2\n\n" + closeMark, response2: ":status: 200\nx-one: 1␍␊x-two: 2", clientWant: "502"},
		{name: "NUL in a response value", response1: "HTTP/1.1 200 OK\nX-One: 1␀2\n\n" + closeMark, response2: ":status: 200\nx-one: 1␀2", clientWant: "502"},
		{name: "connection header in an HTTP/2 response", response2: ":status: 200\nconnection: close", clientWant: "502"},
		{name: "two Content-Length headers in a response", response1: "HTTP/1.1 200 OK\nContent-Length: 2\nContent-Length: 3\n\nok" + closeMark, response2: ":status: 200\ncontent-length: 2\ncontent-length: 3\n\nok", clientWant: "502"},
		{name: "response body shorter than Content-Length", response1: "HTTP/1.1 200 OK\nContent-Length: 70000\n\n" + large + closeMark,
			clientWant: "200\ncontent-length: 70000\n\n" + large + "(cut)"},
		{name: "response DATA shorter than Content-Length", response2: ":status: 200\ncontent-length: 5\n\nhel", clientWant: "200\ncontent-length: 5(cut)"},
		{name: "missing last chunk", response1: "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n5\nhello\n" + closeMark, clientWant1: "200\n\nhello(cut)", clientWant2: "200\n\nhello(cut)"},
		{name: "Content-Length and chunks in a response", response1: "HTTP/1.1 200 OK\nContent-Length: 2\nTransfer-Encoding: chunked\n\n0\n\n" + closeMark, clientWant: "502"},
	}
	for i := range cases {
		cases[i].http1, cases[i].http2, cases[i].upstreamWant = get1+"\n", get2, forwarded
	}
	return append(cases,
		translation{name: "Expect: 100-continue", http1: "POST /t HTTP/1.1\nHost: shop.test\nExpect: 100-continue\nContent-Length: 5\n\nhello", // RFC 9110 10.1.1
			http2: ":method: POST\nexpect: 100-continue\ncontent-length: 5\n\nhello", upstreamWant: "POST /t shop.test\ncontent-length: 5\nexpect: 100-continue\n\nhello",
			response1: "HTTP/1.1 100 Continue\n\nHTTP/1.1 200 OK\nContent-Length: 2\n\nok", response2: ":status: 100" + messageSeparator + ":status: 200\ncontent-length: 2\n\nok",
			clientWant: "100" + messageSeparator + "200\ncontent-length: 2\n\nok"},
		translation{name: "HEAD", http1: "HEAD /t HTTP/1.1\nHost: shop.test\n\n", http2: ":method: HEAD", upstreamWant: "HEAD /t shop.test",
			response1: "HTTP/1.1 200 OK\nContent-Length: 5\n\n", response2: ":status: 200\ncontent-length: 5", clientWant: "200\ncontent-length: 5"},
		translation{name: "HEAD with DATA", http1: "HEAD /t HTTP/1.1\nHost: shop.test\n\n", http2: ":method: HEAD", upstreamWant: "HEAD /t shop.test",
			response2: ":status: 200\ncontent-length: 5\n\nhello", clientWant: "200\ncontent-length: 5"},
	)
}
