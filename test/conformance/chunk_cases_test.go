package conformance

import "strings"

func chunkCases() []ruleCase {
	cases := []ruleCase{
		chunkedBodyPasses("sizes are hexadecimal in any case", "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789"),
		chunkedBodyPasses("sizes may have leading zeros", "0002\r\nhi\r\n000\r\n\r\n", "hi"),
		chunkedBodyPasses("extensions are read and not forwarded", "2;a\r\nh1\r\n2;a=b;c=\"d;e\"\r\nh2\r\n0;last=\"\"\r\n\r\n", "h1h2"),
		chunkedBodyPasses("whitespace before an extension is read", "2 \t;\ta\r\nhi\r\n0\r\n\r\n", "hi"),
		chunkedBodyPasses("chunks that look like the end are part of the body", "7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n", "\r\n0\r\n\r\n"),
		chunkedBodyPasses("many small chunks pass", strings.Repeat("1\r\nx\r\n", 500)+"0\r\n\r\n", strings.Repeat("x", 500)),
		{
			name: "the size of extensions is limited", rfc: "9112 7.1.1",
			script: script{clientSends(postChunked + "2;" + strings.Repeat("a", 40_000) + "\r\nhi\r\n0\r\n\r\n"), rejectedOnly(431), originMessageIncomplete},
		},
		{
			name: "the total size of extensions is limited", rfc: "9112 7.1.1", wholeWritesOnly: true,
			script: script{clientSends(postChunked + strings.Repeat("1;"+strings.Repeat("a", 1000)+"\r\nx\r\n", 100) + "0\r\n\r\n"), rejectedOnly(431), originMessageIncomplete},
		},
	}
	for name, chunks := range pairs(
		"a size that overflows 64 bits", "10000000000000002\r\nhi\r\n0\r\n\r\n",
		"a size that overflows 63 bits", "8000000000000000\r\nhi\r\n0\r\n\r\n",
		"a size of all ones", "ffffffffffffffff\r\nhi\r\n0\r\n\r\n",
		"a size of too many digits", strings.Repeat("0", 40)+"2\r\nhi\r\n0\r\n\r\n",
		"a size with 0x", "0x2\r\nhi\r\n0\r\n\r\n",
		"a size with an underscore", "0_2\r\nhi\r\n0\r\n\r\n",
		"a size with a plus", "+2\r\nhi\r\n0\r\n\r\n",
		"a size with a minus", "-2\r\nhi\r\n0\r\n\r\n",
		"a size after a space", " 2\r\nhi\r\n0\r\n\r\n",
		"a size after a tab", "\t2\r\nhi\r\n0\r\n\r\n",
		"a size before a space", "2 \r\nhi\r\n0\r\n\r\n",
		"a size with a space inside", "0 2\r\nhi\r\n0\r\n\r\n",
		"no size", "\r\nhi\r\n0\r\n\r\n",
		"a size that is a word", "two\r\nhi\r\n0\r\n\r\n",
		"a size with a comma", "2,2\r\nhi\r\n0\r\n\r\n",
		"a size with a dot", "2.0\r\nhi\r\n0\r\n\r\n",
		"a size before NUL", "2\x00\r\nhi\r\n0\r\n\r\n",
		"a size before a bare LF", "2\nhi\r\n0\r\n\r\n",
		"a size before a bare CR", "2\rhi\r\n0\r\n\r\n",
		"a size before two CR", "2\r\r\nhi\r\n0\r\n\r\n",
		"an extension without a name", "2;\r\nhi\r\n0\r\n\r\n",
		"an extension that ends in a bare LF", "2;a\nhi\r\n0\r\n\r\n",
		"an extension with a bare LF in quotes", "2;a=\"\n\"\r\nhi\r\n0\r\n\r\n",
		"an extension with a bare CR", "2;a\rb\r\nhi\r\n0\r\n\r\n",
		"an extension with NUL", "2;a\x00\r\nhi\r\n0\r\n\r\n",
		"chunk data longer than the size", "2\r\nhix\r\n0\r\n\r\n",
		"chunk data shorter than the size", "5\r\nhi\r\n0\r\n\r\n0\r\n\r\n",
		"chunk data before a bare LF", "2\r\nhi\n0\r\n\r\n",
		"chunk data before a bare CR", "2\r\nhi\r0\r\n\r\n",
		"chunk data without CRLF", "2\r\nhi0\r\n\r\n",
		"the last chunk before a bare LF", "2\r\nhi\r\n0\n\r\n",
		"a bare LF as the end", "2\r\nhi\r\n0\r\n\n",
		"CR and another byte as the end", "2\r\nhi\r\n0\r\n\rX",
		"a trailer field before a bare LF", "2\r\nhi\r\n0\r\nX-A: 1\n\r\n",
		"a trailer field with a bare CR", "2\r\nhi\r\n0\r\nX-A: 1\rX\r\n\r\n",
		"a trailer field with NUL", "2\r\nhi\r\n0\r\nX-A: \x00\r\n\r\n",
		"a trailer field with a space before its colon", "2\r\nhi\r\n0\r\nX-A : 1\r\n\r\n",
		"a trailer field on a folded line", "2\r\nhi\r\n0\r\nX-A: 1\r\n 2\r\n\r\n",
		"a trailer field without a colon", "2\r\nhi\r\n0\r\nGET / HTTP/1.1\r\n\r\n",
		"a trailer field without a name", "2\r\nhi\r\n0\r\n: 1\r\n\r\n",
	) {
		cases = append(cases, ruleCase{
			name: "rejected: " + name, rfc: "9112 7.1",
			script: script{clientSends(postChunked + chunks + smuggled), rejectedOnly(400), originMessageIncomplete},
		})
		if strings.HasSuffix(name, "a space before its colon") {
			continue // a proxy removes such a space from a response: RFC 9112 5.1
		}
		cases = append(cases,
			ruleCase{
				name: "truncates a response: " + name, rfc: "9112 8",
				script: script{clientSends(get), originReceives(get), originSends(responseStart + "Transfer-Encoding: chunked\r\n\r\n" + chunks), clientReceivesTruncatedOrBadGateway, carriesNextExchange},
			})
	}
	return cases
}

// chunkedBodyPasses returns an exchange in which Weft decodes and re-encodes a chunked body in both
// directions.
func chunkedBodyPasses(name, chunks, body string) ruleCase {
	const head = responseStart + "Transfer-Encoding: chunked\r\n\r\n"
	return ruleCase{
		name: name, rfc: "9112 7.1",
		script: script{
			clientSends(postChunked + chunks), originReceivesChunked(postChunked, body, ""), originSends(okResponse), clientReceives(okResponse),
			clientSends(get), originReceives(get), originSends(head + chunks), clientReceivesChunked(head, body, ""), carriesNextExchange,
		},
	}
}

// clientReceivesTruncatedOrBadGateway verifies that Weft does not forward a malformed body as
// complete: the client receives a 502 or a truncated response. Weft does not reuse the origin
// connection. It keeps the client's connection only after a 502 without Connection: close.
func clientReceivesTruncatedOrBadGateway(h *harness) {
	h.Helper()
	head := h.readHead()
	if !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		reply := parseLocalReply(h, head, 502)
		h.discard(reply.length)
		if reply.closes {
			clientClosed(h)
		}
	} else {
		clientTruncated(h)
	}
	originClosed(h)
}

func trailerCases() []ruleCase {
	const response = responseStart + "Transfer-Encoding: chunked\r\n\r\n"
	return []ruleCase{
		{
			name: "the trailer section of a request is forwarded", rfc: "9110 6.5",
			script: script{clientSends(postChunked + "2\r\nhi\r\n0\r\nX-Sum: 1\r\nx-odd:  2 \r\n\r\n"),
				originReceivesChunked(postChunked, "hi", "X-Sum: 1\r\nx-odd: 2\r\n"), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "the trailer section of a response is forwarded", rfc: "9110 6.5",
			script: script{clientSends(get), originReceives(get), originSends(response + "2\r\nhi\r\n0\r\nX-Sum: 1\r\nx-odd:  2 \r\n\r\n"),
				clientReceivesChunked(response, "hi", "X-Sum: 1\r\nx-odd: 2\r\n"), carriesNextExchange},
		},
		{
			name: "the Trailer field is forwarded in both directions", rfc: "9110 6.6.2",
			script: script{clientSends(post + "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n"),
				originReceivesChunked(post+"Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n", "hi", "X-Sum: 1\r\n"),
				originSends(responseStart + "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n"),
				clientReceivesChunked(responseStart+"Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n", "hi", "X-Sum: 1\r\n"), carriesNextExchange},
		},
		{
			name: "framing, routing and credential fields are removed from request trailers", rfc: "9110 6.5.1",
			script: script{clientSends(postChunked + "2\r\nhi\r\n0\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\nHost: other\r\nAuthorization: a\r\n" +
				"Cookie: a\r\nX-Sum: 1\r\nContent-Type: a\r\nX-Forwarded-For: a\r\nTE: a\r\nConnection: close\r\nExpect: a\r\nMax-Forwards: 1\r\nTrailer: a\r\n\r\n"),
				originReceivesChunked(postChunked, "hi", "X-Sum: 1\r\n"), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "framing, routing and credential fields are removed from response trailers", rfc: "9110 6.5.1",
			script: script{clientSends(get), originReceives(get), originSends(response + "2\r\nhi\r\n0\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\nSet-Cookie: a\r\n" +
				"Location: a\r\nConnection: close\r\nContent-Encoding: a\r\nX-Sum: 1\r\nCache-Control: a\r\n\r\n"),
				clientReceivesChunked(response, "hi", "X-Sum: 1\r\n"), carriesNextExchange},
		},
		{
			name: "a request trailer field named in Connection is removed", rfc: "9110 7.6.1",
			script: script{clientSends(post + "Connection: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx-sum: 1\r\nX-A: 1\r\n\r\n"),
				originReceivesChunked(postChunked, "hi", "X-A: 1\r\n"), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "a response trailer field named in Connection is removed", rfc: "9110 7.6.1",
			script: script{clientSends(get), originReceives(get), originSends(responseStart + "Connection: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx-sum: 1\r\nX-A: 1\r\n\r\n"),
				clientReceivesChunked(response, "hi", "X-A: 1\r\n"), carriesNextExchange},
		},
		{
			name: "the size of a request trailer section is limited", rfc: "9110 6.5",
			script: script{clientSends(postChunked + "0\r\n" + strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 40) + "\r\n"), rejectedOnly(431), originMessageIncomplete},
		},
		{
			name: "the number of trailer fields is limited", rfc: "9110 6.5",
			script: script{clientSends(postChunked + "0\r\n" + strings.Repeat("A: 1\r\n", 101) + "\r\n"), rejectedOnly(431), originMessageIncomplete},
		},
	}
}
