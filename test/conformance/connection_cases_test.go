package conformance

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// closingResponse is the response that announces the close of the client's connection.
const closingResponse = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"

func persistenceCases() []ruleCase {
	to := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n" }
	ok := func(text string) string {
		return responseStart + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(text), text)
	}
	localRoute := func(s *setup) { s.extra = append(s.extra, direct("/local", 404, "no")) }
	return []ruleCase{
		{
			name: "a connection carries many exchanges", rfc: "9112 9.3",
			script: concat(requestPasses(get), requestPasses(get), requestPasses(get), requestPasses(get)),
		},
		{
			name: "pipelined requests are served in order, one at a time", rfc: "9112 9.3.2", wholeWritesOnly: true,
			script: script{clientSends(to("/1") + to("/2") + to("/3")),
				originReceives(to("/1")), originReceivesNothing, originSends(ok("one")), clientReceives(ok("one")),
				originReceives(to("/2")), originSends(ok("two")), clientReceives(ok("two")),
				originReceives(to("/3")), originSends(ok("three")), clientReceives(ok("three")), carriesNextExchange},
		},
		{
			name: "pipelined requests with bodies are separated", rfc: "9112 9.3.2", wholeWritesOnly: true,
			script: script{clientSends(post + "Content-Length: 2\r\n\r\nhi" + postChunked + "2\r\nho\r\n0\r\n\r\n" + "\r\n" + to("/3")),
				originReceives(post + "Content-Length: 2\r\n\r\nhi"), originSends(okResponse), clientReceives(okResponse),
				originReceivesChunked(postChunked, "ho", ""), originSends(okResponse), clientReceives(okResponse),
				originReceives(to("/3")), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "a pipelined HEAD does not mix up the responses", rfc: "9112 9.3.2", wholeWritesOnly: true,
			script: script{clientSends("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n" + get),
				originReceives("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n"), originSends(responseStart + "Content-Length: 100\r\n\r\n"), clientReceives(responseStart + "Content-Length: 100\r\n\r\n"),
				originReceives(get), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "local replies keep their order among pipelined responses", rfc: "9112 9.3.2", wholeWritesOnly: true, setup: localRoute,
			script: script{clientSends(get + to("/local") + get), originReceives(get), originSends(okResponse), clientReceives(okResponse), localReplyKeepAlive(404), originReceives(get), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "a rejection keeps its order among pipelined responses and is the last", rfc: "9112 9.3.2", wholeWritesOnly: true,
			script: script{clientSends(get + "GET / HTTP/1.1\r\n\r\n" + smuggled), originReceives(get), originSends(okResponse), clientReceives(okResponse), rejected(400)},
		},
		{
			name: "a malformed response keeps its order among pipelined responses", rfc: "9112 9.3.2", wholeWritesOnly: true,
			script: script{clientSends(get + to("/2") + to("/3")), originReceives(get), originSends(okResponse), clientReceives(okResponse),
				originReceives(to("/2")), originSends("nonsense\r\n\r\n"), localReplyKeepAlive(502), originClosed,
				originReceives(to("/3")), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "a hundred pipelined requests get responses", rfc: "9112 9.3.2", wholeWritesOnly: true, setup: localRoute,
			script: append(append(script{clientSends(strings.Repeat(to("/local"), 100))}, repeat(100, localReplyKeepAlive(404))...), carriesNextExchange),
		},
		{
			name: "an interim response keeps its order among pipelined responses", rfc: "9112 9.3.2", wholeWritesOnly: true,
			script: script{clientSends(get + get), originReceives(get), originSends("HTTP/1.1 103 Early Hints\r\n\r\n" + okResponse), clientReceives("HTTP/1.1 103 Early Hints\r\n\r\n" + okResponse), originReceives(get), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "bytes after a response are not another response", rfc: "9112 9.3", wholeWritesOnly: true,
			script: script{clientSends(get), originReceives(get), originSends(okResponse + "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"), clientReceives(okResponse), originClosed, carriesNextExchange},
		},
		{
			name: "late bytes after a response are not another response", rfc: "9112 9.3",
			script: script{clientSends(get), originReceives(get), originSends(okResponse), clientReceives(okResponse), originSends("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"), clientSends(get), originClosed, originReceives(get), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "bytes after the last chunk of a response are not another response", rfc: "9112 9.3", wholeWritesOnly: true,
			script: script{clientSends(get), originReceives(get), originSends(responseStart + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
				clientReceivesChunked(responseStart+"Transfer-Encoding: chunked\r\n\r\n", "hi", ""), originClosed, carriesNextExchange},
		},
		{
			name: "bytes of an origin before the request are not a response", rfc: "9112 9.2",
			script: script{clientSends(get), originReceives(get), originSends(okResponse), clientReceives(okResponse), originSends(" "), clientSends(get), originClosed, originReceives(get), originSends(okResponse), clientReceives(okResponse)},
		},
		{
			name: "a connection ends after the maximum number of requests", rfc: "9112 9.6", setup: func(s *setup) { s.MaxRequestsPerConnection = 2 },
			script: script{clientSends(get), originReceives(get), originSends(okResponse), clientReceives(okResponse), clientSends(get), originReceives(get), originSends(okResponse), clientReceives(closingResponse), clientClosed, carriesNextExchange},
		},
		{
			name: "an idle connection ends without a response", rfc: "9112 9.5", setup: func(s *setup) { s.idle = 50 * time.Millisecond }, wholeWritesOnly: true,
			script: script{clientSends(get), originReceives(get), originSends(okResponse), clientReceives(okResponse), clientClosed},
		},
		{
			name: "a connection without a request ends without a response", rfc: "9112 9.5", setup: func(s *setup) { s.idle = 50 * time.Millisecond }, wholeWritesOnly: true,
			script: script{clientSends(""), clientClosed},
		},
	}
}

func repeat(n int, do step) script {
	out := make(script, n)
	for i := range out {
		out[i] = do
	}
	return out
}

func earlyCases() []ruleCase {
	localRoute := func(s *setup) { s.extra = append(s.extra, direct("/local", 404, "no")) }
	const large = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n"
	return []ruleCase{
		{
			name: "a response before the end of the body ends both connections", rfc: "9112 9.5",
			script: script{clientSends(large + "partial"), originReceives(large + "partial"), originSends("HTTP/1.1 413 Content Too Large\r\nDate: d\r\nContent-Length: 0\r\n\r\n"),
				clientReceives("HTTP/1.1 413 Content Too Large\r\nDate: d\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), clientClosed, originClosed, carriesNextExchange},
		},
		{
			name: "a response before the last chunk ends both connections", rfc: "9112 9.5",
			script: script{clientSends(postChunked + "5\r\nhello\r\n"), originReceivesStart(postChunked, "hello"), originSends("HTTP/1.1 413 Content Too Large\r\nDate: d\r\nContent-Length: 0\r\n\r\n"),
				clientReceives("HTTP/1.1 413 Content Too Large\r\nDate: d\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), clientClosed, originClosed, carriesNextExchange},
		},
		{
			name: "an early response may last as long as the request body", rfc: "9112 9.5",
			script: script{clientSends(postChunked), originReceives(postChunked), originSends(responseStart + "Transfer-Encoding: chunked\r\n\r\n"), clientReceives(responseStart + "Transfer-Encoding: chunked\r\n"), clientReceivesHeadEnd,
				clientSends("1\r\na\r\n"), originReceives("1\r\na\r\n"), originSends("1\r\nb\r\n"), clientReceives("1\r\nb\r\n"),
				clientSends("1\r\nc\r\n0\r\n\r\n"), originReceivesChunked("", "c", ""), originSends("0\r\n\r\n"), clientReceives("0\r\n\r\n")},
		},
		{
			name: "a body after an early response is not read as a request", rfc: "9112 9.3", wholeWritesOnly: true,
			script: script{clientSends(post + "Content-Length: 42\r\n\r\n"), originReceives(post + "Content-Length: 42\r\n\r\n"), originSends(okResponse), clientReceives(closingResponse), clientSends(smuggled), clientClosed, originClosedWithin(smuggled), originUntouched},
		},
		{
			name: "a small unread body is discarded", rfc: "9112 9.3", setup: localRoute,
			script: script{clientSends("POST /local HTTP/1.1\r\nHost: h\r\nContent-Length: 35\r\n\r\n" + smuggled), localReplyKeepAlive(404), originUntouched, carriesNextExchange},
		},
		{
			name: "small unread chunks are discarded", rfc: "9112 9.3", setup: localRoute, wholeWritesOnly: true,
			script: script{clientSends("POST /local HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n23\r\n" + smuggled + "\r\n0\r\n\r\n"), localReplyKeepAlive(404), originUntouched, carriesNextExchange},
		},
		{
			name: "a large unread body ends the connection", rfc: "9112 9.6", setup: localRoute,
			script: script{clientSends("POST /local HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n" + smuggled), rejected(404)},
		},
		{
			name: "malformed unread chunks end the connection", rfc: "9112 9.6", setup: localRoute, wholeWritesOnly: true,
			script: script{clientSends("POST /local HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nbroken\r\n" + smuggled), rejected(404)},
		},
		{
			name: "a client that still sends its body gets the local reply", rfc: "9112 9.6", wholeWritesOnly: true, setup: localRoute,
			script: script{clientSends("POST /local HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n" + strings.Repeat("x", 500_000)), rejected(404)},
		},
	}
}

// clientReceivesHeadEnd reads the end of a head with or without Connection: close. After a response
// to an incomplete request, Weft may send the header or omit it.
func clientReceivesHeadEnd(h *harness) {
	h.Helper()
	if rest := h.readHeadRest(); rest != "\r\n" && rest != "Connection: close\r\n\r\n" {
		h.Fatalf("the head ends in %q, want an empty line, or Connection: close and an empty line", rest)
	}
}

// originReceivesStart verifies that the origin reads a head and the beginning of a chunked body,
// regardless of the chunk sizes, but not the end of the body.
func originReceivesStart(head, body string) step {
	return func(h *harness) {
		h.Helper()
		conn := h.ensureOrigin()
		h.expect("the origin", conn, head)
		got := ""
		for {
			if data, _, complete := dechunk(got + "0\r\n\r\n"); complete && data == body {
				return
			}
			buf := make([]byte, 1)
			if _, err := conn.Read(buf); err != nil {
				h.Fatalf("after the head the origin got\n%s\nthen %v", quote(got), err)
			}
			got += string(buf)
		}
	}
}

func disconnectCases() []ruleCase {
	const large = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n"
	return []ruleCase{
		{
			name: "an origin that closes before its response causes a 502", rfc: "9110 15.6.3",
			script: script{clientSends(get), originReceives(get), originCloses, localReplyKeepAlive(502), carriesNextExchange},
		},
		{
			name: "an origin that closes within the head causes a 502", rfc: "9110 15.6.3",
			script: script{clientSends(get), originReceives(get), originSends("HTTP/1.1 200 OK\r\nDate: d\r\nContent-"), originCloses, localReplyKeepAlive(502), carriesNextExchange},
		},
		{
			name: "an origin that closes after an interim response causes a 502", rfc: "9110 15.6.3",
			script: script{clientSends(get), originReceives(get), originSends("HTTP/1.1 103 Early Hints\r\n\r\n"), clientReceives("HTTP/1.1 103 Early Hints\r\n\r\n"), originCloses, localReplyKeepAlive(502), carriesNextExchange},
		},
		{
			name: "an origin that closes within a body with Content-Length truncates the response", rfc: "9112 8", wholeWritesOnly: true,
			script: script{clientSends(get), originReceives(get), originSends(responseStart + "Content-Length: 10\r\n\r\nhello"), clientReceives(responseStart + "Content-Length: 10\r\n\r\nhello"), originCloses, clientTruncated, carriesNextExchange},
		},
		{
			name: "an origin that closes within chunks truncates the response", rfc: "9112 8", wholeWritesOnly: true,
			script: script{clientSends(get), originReceives(get), originSends(responseStart + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"), clientReceives(responseStart + "Transfer-Encoding: chunked\r\n\r\n"), originCloses, clientTruncated, carriesNextExchange},
		},
		{
			name: "an origin that closes within the last chunk truncates the response", rfc: "9112 8", wholeWritesOnly: true,
			script: script{clientSends(get), originReceives(get), originSends(responseStart + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"), clientReceives(responseStart + "Transfer-Encoding: chunked\r\n\r\n"), originCloses, clientTruncated, carriesNextExchange},
		},
		{
			name: "a GET that the origin has read is not sent again", rfc: "9110 9.2.2",
			script: script{clientSends(get), originReceives(get), originSends(okResponse), clientReceives(okResponse), clientSends(get), originReceives(get), originCloses, localReplyKeepAlive(502), originUntouched, carriesNextExchange},
		},
		{
			name: "a POST that a closing connection may have received is not sent again", rfc: "9110 9.2.2",
			script: script{clientSends(get), originReceives(get), originSends(okResponse), clientReceives(okResponse), clientSends(post + "Content-Length: 2\r\n\r\nhi"), originReceives(post + "Content-Length: 2\r\n\r\nhi"), originCloses, localReplyKeepAlive(502), originUntouched, carriesNextExchange},
		},
		{
			name: "a connection that the origin closed while idle is not used", rfc: "9112 9.5",
			script: script{clientSends(get), originReceives(get), originSends(okResponse), clientReceives(okResponse), originCloses,
				clientSends(post + "Content-Length: 2\r\n\r\nhi"), originReceives(post + "Content-Length: 2\r\n\r\nhi"), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "an origin that half-closes within its response truncates it", rfc: "9112 8", wholeWritesOnly: true,
			script: script{clientSends(get), originReceives(get), originSends(responseStart + "Content-Length: 10\r\n\r\nhello"), clientReceives(responseStart + "Content-Length: 10\r\n\r\nhello"), originHalfCloses, clientTruncated, originClosed},
		},
		{
			name: "a client that closes before the response ends the origin request", rfc: "9112 9.5", wholeWritesOnly: true,
			script: script{clientSends(get), originReceives(get), clientCloses, originClosed},
		},
		{
			name: "a client that closes within its body ends the origin request", rfc: "9112 8", wholeWritesOnly: true,
			script: script{clientSends(large + "partial"), originReceives(large + "partial"), clientCloses, originClosed},
		},
		{
			name: "a client that closes within chunks sends an incomplete request", rfc: "9112 8", wholeWritesOnly: true,
			script: script{clientSends(postChunked + "5\r\nhello\r\n"), originReceivesStart(postChunked, "hello"), clientCloses, originClosed},
		},
		{
			name: "a client that closes within a head gets no response", rfc: "9112 8", wholeWritesOnly: true,
			script: script{clientSends("GET / HTTP/1.1\r\nHo"), clientCloses, originUntouched},
		},
		{
			name: "a client that half-closes within its body sends an incomplete request", rfc: "9112 8", wholeWritesOnly: true,
			script: script{clientSends(post + "Content-Length: 10\r\n\r\nhello"), clientHalfCloses, originMessageIncomplete},
		},
		{
			name: "a half-close of the client is a disconnect", rfc: "configuration", wholeWritesOnly: true,
			script: script{clientSends(get), originReceives(get), clientHalfCloses, originClosed},
		},
		{
			name: "a client that half-closes gets its response if allowed", rfc: "9112 9.6", setup: func(s *setup) { s.AllowHalfClose = true },
			script: script{clientSends(get), clientHalfCloses, originReceives(get), originSends(okResponse), clientReceives("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n"), clientReceivesHeadEnd, clientReceives("ok"), clientClosed},
		},
		{
			name: "an origin that does not respond in time causes a 504", rfc: "9110 15.6.5", setup: func(s *setup) { s.timeout = 100 * time.Millisecond },
			script: script{clientSends(get), originReceives(get), localReplyKeepAlive(504), originClosed},
		},
	}
}

func limitCases() []ruleCase {
	line := func(n int) string {
		const overhead = "GET / HTTP/1.1"
		return "GET /" + strings.Repeat("a", n-len(overhead)) + " HTTP/1.1\r\nHost: h\r\n\r\n"
	}
	head := func(n int) string {
		const overhead = requestStart + "X-A: \r\n\r\n"
		return requestStart + "X-A: " + strings.Repeat("a", n-len(overhead)) + "\r\n\r\n"
	}
	fields := func(n int) string { return requestStart + strings.Repeat("X-A: 1\r\n", n-1) + "\r\n" }
	body := func(s *setup) { s.MaxRequestBodySize = 10 }
	cases := []ruleCase{
		{name: "a request line of 8,000 octets passes", rfc: "9112 3", script: requestPasses(line(8000))},
		{name: "a request line of the maximum size passes", rfc: "9112 3", script: requestPasses(line(8192))},
		{name: "a longer request line is rejected", rfc: "9110 15.5.15", script: script{clientSends(line(8193)), rejected(414)}},
		{name: "a much longer request line is rejected", rfc: "9110 15.5.15", wholeWritesOnly: true, script: script{clientSends(line(200_000)), rejected(414)}},
		{name: "an endless request line is rejected", rfc: "9110 15.5.15", script: script{clientSends("GET /" + strings.Repeat("a", 9000)), rejected(414)}},
		{name: "an endless method is not implemented", rfc: "9112 3", script: script{clientSends(strings.Repeat("A", 9000)), rejected(501)}},
		{name: "a head of the maximum size passes", rfc: "6585 5", script: requestPasses(head(16 << 10))},
		{name: "a larger head is rejected", rfc: "6585 5", script: script{clientSends(head(16<<10 + 1)), rejected(431)}},
		{name: "a much larger head is rejected", rfc: "6585 5", wholeWritesOnly: true, script: script{clientSends(head(300_000)), rejected(431)}},
		{name: "an endless head is rejected", rfc: "6585 5", script: script{clientSends(requestStart + strings.Repeat("X-A: 1\r\n", 3000)), rejected(431)}},
		{name: "an endless field name is rejected", rfc: "6585 5", script: script{clientSends(requestStart + strings.Repeat("a", 17_000)), rejected(431)}},
		{name: "the maximum number of fields passes", rfc: "6585 5", script: requestPasses(fields(100))},
		{name: "more fields are rejected", rfc: "6585 5", script: script{clientSends(fields(101)), rejected(431)}},
		{name: "a response head of the maximum size passes", rfc: "9112 2.3", script: responsePasses(responseStart + "X-A: " + strings.Repeat("a", 16<<10-len(responseStart)-len("X-A: \r\nContent-Length: 0\r\n\r\n")) + "\r\nContent-Length: 0\r\n\r\n")},
		{name: "a body of the maximum size passes", rfc: "9110 15.5.14", setup: body, script: requestPasses(post + "Content-Length: 10\r\n\r\n0123456789")},
		{name: "a larger Content-Length is rejected", rfc: "9110 15.5.14", setup: body, script: script{clientSends(post + "Content-Length: 11\r\n\r\n0123456789x"), rejected(413)}},
		{name: "a larger Content-Length with an expectation is rejected", rfc: "9110 15.5.14", setup: body, script: script{clientSends(post + "Content-Length: 11\r\nExpect: 100-continue\r\n\r\n"), rejected(413)}},
		{name: "chunks of the maximum total size pass", rfc: "9110 15.5.14", setup: body,
			script: script{clientSends(postChunked + "5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n"), originReceivesChunked(postChunked, "0123456789", ""), originSends(okResponse), clientReceives(okResponse), carriesNextExchange}},
		{name: "chunks beyond the limit are rejected", rfc: "9110 15.5.14", setup: body,
			script: script{clientSends(postChunked + "5\r\n01234\r\n6\r\n56789x\r\n0\r\n\r\n"), rejectedOnly(413), originMessageIncomplete}},
		{name: "one chunk beyond the limit is rejected", rfc: "9110 15.5.14", setup: body,
			script: script{clientSends(postChunked + "b\r\n0123456789x\r\n0\r\n\r\n"), rejectedOnly(413), originMessageIncomplete}},
	}
	return append(cases, slowCases()...)
}

// slowCases test slow clients and origins. Most are not run byte by byte, because that changes the
// timing.
func slowCases() []ruleCase {
	const short = 100 * time.Millisecond
	slowHead := func(s *setup) { s.HeadTimeout = short }
	slowBody := func(s *setup) { s.BodyTimeout = short }
	return []ruleCase{
		{name: "a slow head is rejected", rfc: "9110 15.5.9", wholeWritesOnly: true, setup: slowHead, script: script{clientSends("GET / HT"), rejected(408)}},
		{name: "a slow field section is rejected", rfc: "9110 15.5.9", wholeWritesOnly: true, setup: slowHead, script: script{clientSends(requestStart + "X-A: 1\r\n"), rejected(408)}},
		{name: "a trickled head is rejected", rfc: "9110 15.5.9", wholeWritesOnly: true, setup: slowHead,
			script: script{clientSends("GET / HTTP/1.1\r\n"), trickle("X-A: 1\r\n", 20*time.Millisecond), rejected(408)}},
		{name: "a slow body with Content-Length is rejected", rfc: "9110 15.5.9", wholeWritesOnly: true, setup: slowBody,
			script: script{clientSends(post + "Content-Length: 10\r\n\r\nhello"), rejectedOnly(408), originMessageIncomplete}},
		{name: "slow chunks are rejected", rfc: "9110 15.5.9", wholeWritesOnly: true, setup: slowBody,
			script: script{clientSends(postChunked + "5\r\nhel"), rejectedOnly(408), originMessageIncomplete}},
		{name: "a trickled body ends at the route timeout", rfc: "9110 15.6.5", wholeWritesOnly: true, setup: func(s *setup) { s.timeout = 3 * short },
			script: script{clientSends(post + "Content-Length: 100000\r\n\r\n"), trickle("x", 20*time.Millisecond), rejectedOnly(504), originMessageIncomplete}},
		{name: "a trickled unread body ends its connection", rfc: "9112 9.5", wholeWritesOnly: true,
			setup:  func(s *setup) { s.extra = append(s.extra, direct("/local", 404, "no")) },
			script: script{clientSends("POST /local HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n"), clientReceives("HTTP/1.1 404 Not Found\r\n"), trickleUntilClosed("x", 50*time.Millisecond), originUntouched}},
		{name: "a response that is read too slowly ends at the route timeout", rfc: "configuration", wholeWritesOnly: true, setup: func(s *setup) { s.timeout = 20 * short },
			script: script{clientSends(get), originReceives(get), originSendsConcurrently(responseStart + "Content-Length: 33554432\r\n\r\n" + strings.Repeat("x", 32<<20)), clientReceives(responseStart), clientReadsSlowly(50 * time.Millisecond)}},
		{name: "a slow second head is rejected", rfc: "9110 15.5.9", wholeWritesOnly: true, setup: slowHead,
			script: script{clientSends(get + "GET"), originReceives(get), originSends(okResponse), clientReceives(okResponse), rejected(408)}},
	}
}

// trickle makes the client send text repeatedly until a response arrives.
func trickle(text string, every time.Duration) step {
	return func(h *harness) {
		h.Helper()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for start := time.Now(); !h.clientHasInput(); <-tick.C {
			if time.Since(start) > waitTimeout {
				h.Fatalf("no response during %v of trickled bytes", waitTimeout)
			}
			h.write(h.ensureClient(), text)
		}
	}
}

// trickleUntilClosed makes the client send text repeatedly until Weft closes the connection.
func trickleUntilClosed(text string, every time.Duration) step {
	return func(h *harness) {
		h.Helper()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.Copy(io.Discard, h.ensureClient())
		}()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for start := time.Now(); ; {
			select {
			case <-ended:
				return
			case <-tick.C:
				h.write(h.ensureClient(), text)
			}
			if time.Since(start) > waitTimeout-time.Second {
				h.Fatalf("Weft did not close the connection during %v of trickled bytes", time.Since(start))
			}
		}
	}
}

// originSendsConcurrently makes the origin send text while the script continues.
func originSendsConcurrently(text string) step {
	return func(h *harness) {
		h.Helper()
		conn := h.ensureOrigin()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = io.WriteString(conn, text)
		}()
		h.Cleanup(func() {
			h.closeConnections()
			<-sent
		})
	}
}

// clientReadsSlowly makes the client read a few bytes at a time until Weft closes the origin
// connection.
func clientReadsSlowly(every time.Duration) step {
	return func(h *harness) {
		h.Helper()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.Copy(io.Discard, h.ensureOrigin())
		}()
		tick := time.NewTicker(every)
		defer tick.Stop()
		buf := make([]byte, 8)
		for start := time.Now(); ; {
			select {
			case <-ended:
				return
			case <-tick.C:
				_, _ = h.ensureClient().Read(buf)
			}
			if time.Since(start) > waitTimeout-time.Second {
				h.Fatalf("Weft did not close the origin connection during %v of slow reads", time.Since(start))
			}
		}
	}
}
