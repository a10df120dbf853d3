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
		{name: "fields are kept", http1: get1 + "X-One: 1\nx-two: 2\n\n", http2: "x-one: 1\nx-two: 2", upstreamWant: plain + "\nx-one: 1\nx-two: 2"},
		{name: "the target is kept byte by byte", http1: "GET /a%2Fb;c?d=%41&e HTTP/1.1\nHost: Shop.Test:80\n\n", http2: ":path: /a%2Fb;c?d=%41&e\n:authority: Shop.Test:80",
			upstreamWant: "GET /a%2Fb;c?d=%41&e Shop.Test:80"},
		{name: "cookies are one field", http1: get1 + "Cookie: a=1; b=2; c=3\nX-One: 1\n\n", http2: "cookie: a=1\nx-one: 1\ncookie: b=2; c=3", // RFC 9113 8.2.3
			upstreamWant: plain + "\ncookie: a=1; b=2; c=3\nx-one: 1"},
		{name: "TE is of the connection", http1: get1 + "TE: trailers, gzip\nConnection: TE\n\n", upstreamWant: plain, upstreamWant2: plain + "\nte: trailers"}, // RFC 9110 10.1.4, 9113 8.2.2
		{name: "TE of trailers, which HTTP/2 has on each", http2: "te: trailers", upstreamWant: plain, upstreamWant2: plain + "\nte: trailers"},
		{name: "fields of the connection stay on it", http1: get1 + "Connection: x-hop, keep-alive\nX-Hop: 1\nKeep-Alive: timeout=5\nProxy-Connection: keep-alive\nX-Two: 2\n\n", // RFC 9110 7.6.1
			upstreamWant: plain + "\nx-two: 2"},
		{name: "the absolute form has the host", http1: "GET http://shop.test/t HTTP/1.1\nHost: other.test\n\n", upstreamWant: plain}, // RFC 9112 3.2.2
		{name: "Host beside the same authority", http2: "host: shop.test", upstreamWant: plain},                                       // RFC 9113 8.3.1
		{name: "Host in place of the authority", http2: "-:authority: \nhost: shop.test", upstreamWant: plain},                        // RFC 9113 8.3.1
		{name: "content of a known length", http1: "POST /t HTTP/1.1\nHost: shop.test\nContent-Length: 5\n\nhello", http2: ":method: POST\ncontent-length: 5\n\nhello",
			upstreamWant: "POST /t shop.test\ncontent-length: 5\n\nhello"},
		{name: "content of an unknown length, and trailers", http1: "POST /t HTTP/1.1\nHost: shop.test\nTransfer-Encoding: chunked\n\n2\nhe\n3\nllo\n0\nX-Sum: 5\n\n",
			http2: ":method: POST\n\nhello\n\nx-sum: 5", upstreamWant: "POST /t shop.test\n\nhello\n\nx-sum: 5"},
		{name: "content without bytes", http1: "POST /t HTTP/1.1\nHost: shop.test\nContent-Length: 0\n\n", http2: ":method: POST\ncontent-length: 0\n\n",
			upstreamWant: "POST /t shop.test\ncontent-length: 0"},
		{name: "no content", http1: "DELETE /t HTTP/1.1\nHost: shop.test\n\n", http2: ":method: DELETE", upstreamWant: "DELETE /t shop.test"},
	}
}

// rejectedRequests returns requests that Weft must reject.
func rejectedRequests() []translation {
	all := []translation{
		{name: "two lengths", http1: "POST /t HTTP/1.1\nHost: shop.test\nContent-Length: 5\nContent-Length: 5\n\nhello", http2: ":method: POST\ncontent-length: 5\ncontent-length: 5\n\nhello"},
		{name: "a length and chunks", http1: "POST /t HTTP/1.1\nHost: shop.test\nContent-Length: 5\nTransfer-Encoding: chunked\n\n0\n\n", http2: ":method: POST\ncontent-length: 5\ntransfer-encoding: chunked\n\nhello"},
		{name: "less content than its length", http1: "POST /t HTTP/1.1\nHost: shop.test\nContent-Length: 5\n\nhel" + closeMark, http2: ":method: POST\ncontent-length: 5\n\nhel"},
		{name: "more content than its length", http2: ":method: POST\ncontent-length: 5\n\nhello!"},
		{name: "a length without content", http2: ":method: POST\ncontent-length: 5"},
		{name: "less content than its length before trailers", http2: ":method: POST\ncontent-length: 5\n\nhel\n\nx-sum: 5"},
		{name: "invalid length", http1: "POST /t HTTP/1.1\nHost: shop.test\nContent-Length: +5\n\nhello", http2: ":method: POST\ncontent-length: +5\n\nhello"},
		{name: "two hosts", http1: get1 + "Host: other.test\n\n", http2: "-:authority: \nhost: shop.test\nhost: other.test"},
		{name: "Host beside another authority", http2: "host: other.test"},
		{name: "no host", http1: "GET /t HTTP/1.1\n\n", http2: "-:authority: \nx-one: 1"},
		{name: "invalid host", http1: "GET /t HTTP/1.1\nHost: shop.test/a\n\n", http2: ":authority: shop.test/a"},
		{name: "userinfo before the host", http1: "GET /t HTTP/1.1\nHost: me@shop.test\n\n", http2: ":authority: me@shop.test"}, // RFC 9113 8.3.1
		{name: "a line in a value", http1: get1 + "X-One: 1␊X-Two: 2\n\n", http2: "x-one: 1␍␊x-two: 2"},
		{name: "LF in a value", http1: get1 + "X-One: 1␊2\n\n", http2: "x-one: 1␊2"},
		{name: "CR in a value", http1: get1 + "X-One: 1␍2\n\n", http2: "x-one: 1␍2"},
		{name: "NUL in a value", http1: get1 + "X-One: 1␀2\n\n", http2: "x-one: 1␀2"},
		{name: "a blank before a value", http2: "x-one:  1"},
		{name: "a name with a blank", http1: get1 + "X One: 1\n\n", http2: "x one: 1"},
		{name: "a name with a capital", http2: "X-One: 1"},
		{name: "a folded line", http1: get1 + "X-One: 1\n 2\n\n"},
		{name: "a line in the path", http1: "GET /t␊X: 1 HTTP/1.1\nHost: shop.test\n\n", http2: ":path: /t HTTP/1.1␍␊X: 1"},
		{name: "a blank in the path", http1: "GET /t t HTTP/1.1\nHost: shop.test\n\n", http2: ":path: /t t"},
		{name: "a fragment", http1: "GET /t#a HTTP/1.1\nHost: shop.test\n\n", http2: ":path: /t#a"},
		{name: "a line in the method", http2: ":method: GET / HTTP/1.1␍␊X: 1"},
		{name: "a line in the host", http2: ":authority: shop.test␍␊X: 1"},
		{name: "invalid scheme", http2: ":scheme: http␍␊X: 1"},
		{name: "no path", http2: "-:path: "},
		{name: "a status", http2: ":status: 200"},
		{name: "a pseudo-header field behind others", http2: "x-one: 1\n:protocol: websocket"},
		{name: "a pseudo-header field in trailers", http2: ":method: POST\n\nhello\n\n:path: /u"},
		{name: "TE other than trailers", http2: "te: gzip"},
	}
	for _, f := range []string{"connection: x-one", "keep-alive: timeout=5", "proxy-connection: keep-alive", "transfer-encoding: chunked", "upgrade: websocket"} {
		all = append(all, translation{name: "a field of HTTP/1.1's connections: " + f, http2: f}) // RFC 9113 8.2.2
	}
	for i := range all {
		all[i].clientWant1, all[i].clientWant2 = "400", "(PROTOCOL_ERROR)"
		if strings.HasSuffix(all[i].http1, closeMark) {
			all[i].clientWant1 = "(end)" // a client that closes gets no response
		}
	}
	return all
}

// responseTranslations returns responses, to requests that Weft forwards.
func responseTranslations() []translation {
	const asked = "GET /t shop.test"
	large := strings.Repeat("content ", 2000) // more than Weft buffers before the end is known
	all := []translation{
		{name: "fields of the answer are kept", response1: "HTTP/1.1 201 Created\nSet-Cookie: a=1\nX-One: 1\nSet-Cookie: b=2\nContent-Length: 0\n\n",
			response2: ":status: 201\nset-cookie: a=1\nx-one: 1\nset-cookie: b=2\ncontent-length: 0", clientWant: "201\ncontent-length: 0\nset-cookie: a=1\nset-cookie: b=2\nx-one: 1"},
		{name: "trailers of the answer", response1: "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n5\nhello\n0\nX-Sum: 5\n\n",
			response2: ":status: 200\n\nhello\n\nx-sum: 5", clientWant: "200\n\nhello\n\nx-sum: 5"},
		{name: "content until the end of the connection", response1: "HTTP/1.1 200 OK\n\nhello" + closeMark, clientWant: "200\n\nhello"},
		{name: "fields of the upstream's connection", response1: "HTTP/1.1 200 OK\nConnection: x-hop, close\nX-Hop: 1\nKeep-Alive: timeout=5\nUpgrade: chat\nContent-Length: 2\n\nok" + closeMark},
		{name: "interim answers", response1: "HTTP/1.1 103 Early Hints\nLink: </a>\n\nHTTP/1.1 103 Early Hints\nLink: </b>\n\nHTTP/1.1 200 OK\nContent-Length: 2\n\nok",
			response2:  ":status: 103\nlink: </a>" + messageSeparator + ":status: 103\nlink: </b>" + messageSeparator + ":status: 200\ncontent-length: 2\n\nok",
			clientWant: "103\nlink: </a>" + messageSeparator + "103\nlink: </b>" + messageSeparator + "200\ncontent-length: 2\n\nok"},
		{name: "204", response1: "HTTP/1.1 204 No Content\n\n", response2: ":status: 204", clientWant: "204"},
		{name: "204 with a length", response1: "HTTP/1.1 204 No Content\nContent-Length: 0\n\n", response2: ":status: 204\ncontent-length: 0", clientWant: "204"},
		{name: "304 with the length that it would have", response1: "HTTP/1.1 304 Not Modified\nContent-Length: 5\n\n", response2: ":status: 304\ncontent-length: 5", clientWant: "304\ncontent-length: 5"},
		{name: "204 with content", response1: "HTTP/1.1 204 No Content\n\nhello" + closeMark, clientWant: "204"},
		{name: "304 with content", response1: "HTTP/1.1 304 Not Modified\nContent-Length: 5\n\nhello" + closeMark, clientWant: "304\ncontent-length: 5"},
		{name: "204 with DATA", response2: ":status: 204\n\nhello", clientWant: "204"},
		{name: "304 with DATA", response2: ":status: 304\n\nhello", clientWant: "304"},
		{name: "101 without an upgrade request", response1: "HTTP/1.1 101 Switching Protocols\nConnection: upgrade\nUpgrade: chat\n\n", response2: ":status: 101", clientWant: "502"},
		{name: "no status", response1: "HTTP/1.1 OK\n\n" + closeMark, response2: "x-one: 1", clientWant: "502"},
		{name: "a line in an answer's value", response1: "HTTP/1.1 200 OK\nX-One: 1␊X-Two: 2\n\n" + closeMark, response2: ":status: 200\nx-one: 1␍␊x-two: 2", clientWant: "502"},
		{name: "NUL in an answer's value", response1: "HTTP/1.1 200 OK\nX-One: 1␀2\n\n" + closeMark, response2: ":status: 200\nx-one: 1␀2", clientWant: "502"},
		{name: "a field of a connection in an answer of HTTP/2", response2: ":status: 200\nconnection: close", clientWant: "502"},
		{name: "two lengths of an answer", response1: "HTTP/1.1 200 OK\nContent-Length: 2\nContent-Length: 3\n\nok" + closeMark, response2: ":status: 200\ncontent-length: 2\ncontent-length: 3\n\nok", clientWant: "502"},
		{name: "less content than the answer's length", response1: "HTTP/1.1 200 OK\nContent-Length: 70000\n\n" + large + closeMark,
			clientWant: "200\ncontent-length: 70000\n\n" + large + "(cut)"},
		{name: "less DATA than the answer's length", response2: ":status: 200\ncontent-length: 5\n\nhel", clientWant: "200\ncontent-length: 5(cut)"},
		{name: "chunks without the last", response1: "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n5\nhello\n" + closeMark, clientWant1: "200\n\nhello(cut)", clientWant2: "200\n\nhello(cut)"},
		{name: "a length and chunks of an answer", response1: "HTTP/1.1 200 OK\nContent-Length: 2\nTransfer-Encoding: chunked\n\n0\n\n" + closeMark, clientWant: "502"},
	}
	for i := range all {
		all[i].http1, all[i].http2, all[i].upstreamWant = get1+"\n", get2, asked
	}
	return append(all,
		translation{name: "an expectation and its answer", http1: "POST /t HTTP/1.1\nHost: shop.test\nExpect: 100-continue\nContent-Length: 5\n\nhello", // RFC 9110 10.1.1
			http2: ":method: POST\nexpect: 100-continue\ncontent-length: 5\n\nhello", upstreamWant: "POST /t shop.test\ncontent-length: 5\nexpect: 100-continue\n\nhello",
			response1: "HTTP/1.1 100 Continue\n\nHTTP/1.1 200 OK\nContent-Length: 2\n\nok", response2: ":status: 100" + messageSeparator + ":status: 200\ncontent-length: 2\n\nok",
			clientWant: "100" + messageSeparator + "200\ncontent-length: 2\n\nok"},
		translation{name: "HEAD", http1: "HEAD /t HTTP/1.1\nHost: shop.test\n\n", http2: ":method: HEAD", upstreamWant: "HEAD /t shop.test",
			response1: "HTTP/1.1 200 OK\nContent-Length: 5\n\n", response2: ":status: 200\ncontent-length: 5", clientWant: "200\ncontent-length: 5"},
		translation{name: "HEAD with DATA", http1: "HEAD /t HTTP/1.1\nHost: shop.test\n\n", http2: ":method: HEAD", upstreamWant: "HEAD /t shop.test",
			response2: ":status: 200\ncontent-length: 5\n\nhello", clientWant: "200\ncontent-length: 5"},
	)
}
