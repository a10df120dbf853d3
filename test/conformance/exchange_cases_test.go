package conformance

import "strings"

func interimCases() []ruleCase {
	const put = "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
	const continueResponse = "HTTP/1.1 100 Continue\r\n\r\n"
	return []ruleCase{
		{
			name: "all interim responses are forwarded", rfc: "9110 15.2",
			script: responsePasses("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </b>\r\nLink: </c>\r\n\r\n" + okResponse),
		},
		{
			name: "an interim response is forwarded immediately", rfc: "9110 15.2",
			script: script{clientSends(get), originReceives(get), originSends("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
				clientReceives("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "an unrequested 100 is forwarded", rfc: "9110 15.2",
			script: responsePasses(continueResponse + okResponse),
		},
		{
			name: "a hundred interim responses are forwarded", rfc: "9110 15.2",
			script: responsePasses(strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 100) + okResponse),
		},
		{
			name: "an HTTP/1.0 client gets no interim responses", rfc: "9110 15.2",
			script: script{clientSends("GET / HTTP/1.0\r\nHost: h\r\n\r\n"), originReceives(get), originSends(continueResponse + "HTTP/1.1 103 Early Hints\r\n\r\n" + okResponse),
				clientReceives("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"), clientClosed, carriesNextExchange},
		},
		{
			name: "an interim response with Content-Length is malformed", rfc: "9112 6.3",
			script: script{clientSends(get), originReceives(get), originSends("HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nhello" + okResponse), localReplyKeepAlive(502), originClosed, carriesNextExchange},
		},
		{
			name: "an interim response with Transfer-Encoding is malformed", rfc: "9112 6.1",
			script: script{clientSends(get), originReceives(get), originSends("HTTP/1.1 100 Continue\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + okResponse), localReplyKeepAlive(502), originClosed, carriesNextExchange},
		},
		{
			name: "an expectation and the 100 are forwarded", rfc: "9110 10.1.1",
			script: script{clientSends(put), originReceives(put), originSends(continueResponse), clientReceives(continueResponse), clientSends("hello"), originReceives("hello"), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "an expectation is case-insensitive", rfc: "9110 10.1.1",
			script: script{clientSends(strings.Replace(put, "100-continue", "100-CONTINUE", 1)), originReceives(put), originSends(continueResponse), clientReceives(continueResponse), clientSends("hello"), originReceives("hello"), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "a chunked upload may wait for 100", rfc: "9110 10.1.1",
			script: script{clientSends(post + "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"), originReceives(post + "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"),
				originSends(continueResponse), clientReceives(continueResponse), clientSends("2\r\nhi\r\n0\r\n\r\n"), originReceivesChunked("", "hi", ""), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "a client with an expectation need not wait for 100", rfc: "9110 10.1.1", wholeWritesOnly: true,
			script: script{clientSends(put + "hello"), originReceives(put), originReceives("hello"), originSends(continueResponse + okResponse), clientReceives(continueResponse + okResponse), carriesNextExchange},
		},
		{
			name: "an origin may send the final response without 100", rfc: "9110 10.1.1",
			script: script{clientSends(put), originReceives(put), clientSends("hello"), originReceives("hello"), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "a rejection instead of 100 ends both connections", rfc: "9110 10.1.1",
			script: script{clientSends(put), originReceives(put), originSends("HTTP/1.1 417 Expectation Failed\r\nDate: d\r\nContent-Length: 2\r\n\r\nno"),
				clientReceives("HTTP/1.1 417 Expectation Failed\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"), clientClosed, originClosed, carriesNextExchange},
		},
		{
			name: "a body after a rejection is not read as a request", rfc: "9110 10.1.1",
			script: script{clientSends(post + "Content-Length: 42\r\nExpect: 100-continue\r\n\r\n"), originReceives(post + "Content-Length: 42\r\nExpect: 100-continue\r\n\r\n"),
				originSends("HTTP/1.1 413 Content Too Large\r\nDate: d\r\nContent-Length: 0\r\n\r\n"),
				clientReceives("HTTP/1.1 413 Content Too Large\r\nDate: d\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), clientSends(smuggled), clientClosed, originClosedWithin(smuggled), originUntouched},
		},
		{
			name: "a local reply instead of 100 ends the connection", rfc: "9110 10.1.1", setup: func(s *setup) { s.extra = append(s.extra, direct("/local", 403, "no")) },
			script: script{clientSends("PUT /local HTTP/1.1\r\nHost: h\r\nContent-Length: 42\r\nExpect: 100-continue\r\n\r\n"), rejected(403)},
		},
		{
			name: "an unknown expectation is rejected", rfc: "9110 10.1.1",
			script: script{clientSends("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 200-ok\r\n\r\nhello"), rejected(417)},
		},
		{
			name: "an expectation in HTTP/1.0 is ignored", rfc: "9110 10.1.1",
			script: script{clientSends("PUT / HTTP/1.0\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello"), originReceives("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"),
				originSends(okResponse), clientReceives("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"), clientClosed, carriesNextExchange},
		},
		{
			name: "an expectation without a body is not forwarded", rfc: "9110 10.1.1",
			script: requestBecomes(requestStart+"Expect: 100-continue\r\n\r\n", get),
		},
	}
}

func noBodyCases() []ruleCase {
	const head = "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n"
	toHead := func(response, seen string) script {
		return script{clientSends(head), originReceives(head), originSends(response), clientReceives(seen), carriesNextExchange}
	}
	return []ruleCase{
		{
			name: "a response to HEAD keeps its Content-Length and has no body", rfc: "9112 6.3",
			script: toHead(responseStart+"Content-Length: 1000\r\n\r\n", responseStart+"Content-Length: 1000\r\n\r\n"),
		},
		{
			name: "a response to HEAD may have no Content-Length", rfc: "9112 6.3",
			script: toHead(responseStart+"\r\n", responseStart+"\r\n"),
		},
		{
			name: "a response to HEAD may have Transfer-Encoding and has no body", rfc: "9112 6.3",
			script: script{clientSends(head), originReceives(head), originSends(responseStart + "Transfer-Encoding: chunked\r\n\r\n"), clientReceives(responseStart), clientReceivesEmptyLine, carriesNextExchange},
		},
		{
			name: "bytes after a response to HEAD are not forwarded", rfc: "9112 6.3", wholeWritesOnly: true,
			script: script{clientSends(head), originReceives(head), originSends(responseStart + "Content-Length: 5\r\n\r\nhello"), clientReceives(responseStart + "Content-Length: 5\r\n\r\n"), originClosed, carriesNextExchange},
		},
		{
			name: "HEAD may have a body", rfc: "9110 9.3.2",
			script: script{clientSends("HEAD / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"), originReceives("HEAD / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"),
				originSends(responseStart + "Content-Length: 9\r\n\r\n"), clientReceives(responseStart + "Content-Length: 9\r\n\r\n"), carriesNextExchange},
		},
		{
			name: "a local reply to HEAD has no body", rfc: "9112 6.3", setup: func(s *setup) { s.extra = append(s.extra, direct("/local", 404, "no")) },
			script: script{clientSends("HEAD /local HTTP/1.1\r\nHost: h\r\n\r\n"), localReplyKeepAlive(404), carriesNextExchange},
		},
		{
			name: "a 502 in response to HEAD has no body", rfc: "9112 6.3",
			script: script{clientSends(head), originReceives(head), originSends("nonsense\r\n\r\n"), localReplyKeepAlive(502), originClosed, carriesNextExchange},
		},
		{
			name: "204 has no body", rfc: "9112 6.3",
			script: responsePasses("HTTP/1.1 204 No Content\r\nDate: d\r\n\r\n"),
		},
		{
			name: "204 has no Content-Length", rfc: "9110 8.6",
			script: responseBecomes("HTTP/1.1 204 No Content\r\nDate: d\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 204 No Content\r\nDate: d\r\n\r\n"),
		},
		{
			name: "204 with Content-Length has no body and ends the origin connection", rfc: "9112 6.3",
			script: script{clientSends(get), originReceives(get), originSends("HTTP/1.1 204 No Content\r\nDate: d\r\nContent-Length: 5\r\n\r\nhello"),
				clientReceives("HTTP/1.1 204 No Content\r\nDate: d\r\n\r\n"), originClosed, carriesNextExchange},
		},
		{
			name: "204 with Transfer-Encoding has no body and ends the origin connection", rfc: "9112 6.1",
			script: script{clientSends(get), originReceives(get), originSends("HTTP/1.1 204 No Content\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
				clientReceives("HTTP/1.1 204 No Content\r\nDate: d\r\n\r\n"), originClosed, carriesNextExchange},
		},
		{
			name: "304 keeps its Content-Length", rfc: "9110 8.6",
			script: responsePasses("HTTP/1.1 304 Not Modified\r\nDate: d\r\nETag: \"a\"\r\nContent-Length: 1000\r\n\r\n"),
		},
		{
			name: "304 without Content-Length gets none", rfc: "9110 15.4.5",
			script: responsePasses("HTTP/1.1 304 Not Modified\r\nDate: d\r\n\r\n"),
		},
		{
			name: "bytes after 304 are not forwarded", rfc: "9112 6.3", wholeWritesOnly: true,
			script: script{clientSends(get), originReceives(get), originSends("HTTP/1.1 304 Not Modified\r\nDate: d\r\nContent-Length: 5\r\n\r\nhello"),
				clientReceives("HTTP/1.1 304 Not Modified\r\nDate: d\r\nContent-Length: 5\r\n\r\n"), originClosed, carriesNextExchange},
		},
		{
			name: "205 may have Content-Length: 0", rfc: "9110 15.3.6",
			script: responsePasses("HTTP/1.1 205 Reset Content\r\nDate: d\r\nContent-Length: 0\r\n\r\n"),
		},
	}
}

// clientReceivesEmptyLine reads the end of a head that may contain Transfer-Encoding.
func clientReceivesEmptyLine(h *harness) {
	h.Helper()
	if rest := h.readHeadRest(); rest != "\r\n" && rest != "Transfer-Encoding: chunked\r\n\r\n" {
		h.Fatalf("the head ends in %q, want an empty line, or Transfer-Encoding: chunked and an empty line", rest)
	}
}

func tunnelCases() []ruleCase {
	const upgradeRequest = requestStart + "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
	const upgradeResponse = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
	const connect = "CONNECT db.test:5432 HTTP/1.1\r\nHost: db.test:5432\r\n\r\n"
	const connectResponse = "HTTP/1.1 200 OK\r\nDate: d\r\n\r\n"
	allowConnect := func(s *setup) { s.AllowConnect = true }
	upgraded := script{clientSends(upgradeRequest), originReceives(upgradeRequest), originSends("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"), clientReceivesUpgrade(upgradeResponse)}
	return []ruleCase{
		{
			name: "an upgrade is forwarded and becomes a tunnel in both directions", rfc: "9110 7.8",
			script: concat(upgraded, script{originSends("\x00one\r\n\r\n"), clientReceives("\x00one\r\n\r\n"), clientSends("two\xff"), originReceives("two\xff"), clientSends(smuggled), originReceives(smuggled)}),
		},
		{
			name: "a tunnel ends with the client connection", rfc: "9110 9.3.6",
			script: concat(upgraded, script{clientSends("a"), clientCloses, originReceives("a"), originClosed}),
		},
		{
			name: "a tunnel ends with the origin connection", rfc: "9110 9.3.6",
			script: concat(upgraded, script{originSends("a"), originCloses, clientReceives("a"), clientClosed}),
		},
		{
			name: "the directions of a tunnel end independently", rfc: "9110 9.3.6",
			script: concat(upgraded, script{clientHalfCloses, originHalfClosed, originSends("late"), clientReceives("late"), originCloses, clientClosed}),
		},
		{
			name: "bytes after a 101 belong to the tunnel", rfc: "9110 7.8", wholeWritesOnly: true,
			script: script{clientSends(upgradeRequest), originReceives(upgradeRequest), originSends("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello"),
				clientReceivesUpgrade(upgradeResponse), clientReceives("hello")},
		},
		{
			name: "bytes after an upgrade request are not forwarded before the 101", rfc: "9110 7.8", wholeWritesOnly: true,
			script: script{clientSends(upgradeRequest + "early"), originReceives(upgradeRequest), originReceivesNothing, originSends("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
				clientReceivesUpgrade(upgradeResponse), originReceives("early")},
		},
		{
			name: "an upgrade that the origin ignores is a normal exchange", rfc: "9110 7.8",
			script: script{clientSends(upgradeRequest), originReceives(upgradeRequest), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "bytes after an upgrade that the origin ignores are a request", rfc: "9110 7.8", wholeWritesOnly: true,
			script: script{clientSends(upgradeRequest + get), originReceives(upgradeRequest), originReceivesNothing, originSends(okResponse), clientReceives(okResponse), originReceives(get), originSends(okResponse), clientReceives(okResponse), carriesNextExchange},
		},
		{
			name: "101 without a requested upgrade is malformed", rfc: "9110 15.2.2",
			script: script{clientSends(get), originReceives(get), originSends("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"), localReplyKeepAlive(502), originClosed, carriesNextExchange},
		},
		{
			name: "101 to a protocol that was not requested is malformed", rfc: "9110 7.8",
			script: script{clientSends(upgradeRequest), originReceives(upgradeRequest), originSends("HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n"), localReplyKeepAlive(502), originClosed, carriesNextExchange},
		},
		{
			name: "101 without Upgrade is malformed", rfc: "9110 15.2.2",
			script: script{clientSends(upgradeRequest), originReceives(upgradeRequest), originSends("HTTP/1.1 101 Switching Protocols\r\n\r\n"), localReplyKeepAlive(502), originClosed, carriesNextExchange},
		},
		{
			name: "an upgrade to h2c is not forwarded", rfc: "9110 7.8",
			script: requestBecomes(requestStart+"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", get),
		},
		{
			name: "an upgrade to h2c among others is not forwarded", rfc: "9110 7.8",
			script: requestBecomes(requestStart+"Connection: upgrade\r\nUpgrade: websocket, H2C\r\n\r\n", get),
		},
		{
			name: "Upgrade that Connection does not name is not forwarded", rfc: "9110 7.8",
			script: requestBecomes(requestStart+"Upgrade: websocket\r\n\r\n", get),
		},
		{
			name: "an upgrade in HTTP/1.0 is ignored", rfc: "9110 7.8",
			script: script{clientSends("GET / HTTP/1.0\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"), originReceives(get), originSends(okResponse),
				clientReceives("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"), clientClosed, carriesNextExchange},
		},
		{
			name: "426 keeps its Upgrade field", rfc: "9110 15.5.22",
			script: script{clientSends(get), originReceives(get), originSends("HTTP/1.1 426 Upgrade Required\r\nDate: d\r\nUpgrade: foo/2\r\nConnection: upgrade\r\nContent-Length: 0\r\n\r\n"),
				clientReceives("HTTP/1.1 426 Upgrade Required\r\nDate: d\r\nUpgrade: foo/2\r\nContent-Length: 0\r\nConnection: upgrade\r\n\r\n"), carriesNextExchange},
		},
		{
			name: "CONNECT becomes a tunnel if allowed", rfc: "9110 9.3.6", setup: allowConnect,
			script: script{clientSends(connect), originReceives(connect), originSends(connectResponse), clientReceives("HTTP/1.1 200 OK\r\nDate: d\r\n\r\n"), originSends("\x00one"), clientReceives("\x00one"), clientSends("two"), originReceives("two")},
		},
		{
			name: "bytes after CONNECT are not forwarded before the 2xx", rfc: "9110 9.3.6", setup: allowConnect, wholeWritesOnly: true,
			script: script{clientSends(connect + "early"), originReceives(connect), originReceivesNothing, originSends(connectResponse), clientReceives(connectResponse), originReceives("early")},
		},
		{
			name: "the Content-Length of a 2xx to CONNECT is ignored", rfc: "9110 9.3.6", setup: allowConnect, wholeWritesOnly: true,
			script: script{clientSends(connect), originReceives(connect), originSends("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nhello"), clientReceives(connectResponse + "hello"), clientSends("two"), originReceives("two")},
		},
		{
			name: "CONNECT that the origin rejects is a normal exchange", rfc: "9110 9.3.6", setup: allowConnect,
			script: script{clientSends(connect), originReceives(connect), originSends("HTTP/1.1 403 Forbidden\r\nDate: d\r\nContent-Length: 2\r\n\r\nno"), clientReceives("HTTP/1.1 403 Forbidden\r\nDate: d\r\nContent-Length: 2\r\n\r\nno"), carriesNextExchange},
		},
	}
}

func oldVersionCases() []ruleCase {
	const http10Request = "GET / HTTP/1.0\r\nHost: h\r\n\r\n"
	const http10KeepAlive = "GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n"
	return []ruleCase{
		{
			name: "an HTTP/1.0 client connection ends by default", rfc: "9112 9.3",
			script: script{clientSends(http10Request), originReceives(get), originSends(okResponse), clientReceives("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"), clientClosed, carriesNextExchange},
		},
		{
			name: "an HTTP/1.0 client connection persists with keep-alive", rfc: "9112 9.3",
			script: script{clientSends(http10KeepAlive), originReceives(get), originSends(okResponse), clientReceives("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok"), carriesNextExchange},
		},
		{
			name: "an HTTP/1.0 request may have no Host", rfc: "9112 3.2",
			script: script{clientSends("GET / HTTP/1.0\r\n\r\n"), originReceives("GET / HTTP/1.1\r\nHost: \r\n\r\n"), originSends(okResponse), clientReceives("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"), clientClosed},
		},
		{
			name: "an HTTP/1.0 client gets no chunks", rfc: "9112 6.1",
			script: script{clientSends(http10Request), originReceives(get), originSends(responseStart + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n3\r\nyou\r\n0\r\nX-A: 1\r\n\r\n"),
				clientReceives("HTTP/1.1 200 OK\r\nDate: d\r\nConnection: close\r\n\r\nhiyou"), clientClosed, carriesNextExchange},
		},
		{
			name: "an HTTP/1.0 client connection ends after a body of unknown length", rfc: "9112 9.3",
			script: script{clientSends(http10KeepAlive), originReceives(get), originSends(responseStart + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
				clientReceives("HTTP/1.1 200 OK\r\nDate: d\r\nConnection: close\r\n\r\nhi"), clientClosed, carriesNextExchange},
		},
		{
			name: "a truncated body for an HTTP/1.0 client ends with a reset", rfc: "9112 8", wholeWritesOnly: true,
			script: script{clientSends(http10Request), originReceives(get), originSends(responseStart + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"), clientReceives("HTTP/1.1 200 OK\r\nDate: d\r\nConnection: close\r\n\r\nhi"), originCloses, clientReset},
		},
		{
			name: "chunks in HTTP/1.0 are rejected", rfc: "9112 6.1",
			script: script{clientSends("POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), rejected(400)},
		},
		{
			name: "chunks in an HTTP/1.0 response are malformed", rfc: "9112 6.1",
			script: script{clientSends(get), originReceives(get), originSends("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), localReplyKeepAlive(502), originClosed, carriesNextExchange},
		},
		{
			name: "an HTTP/1.0 POST has a body", rfc: "9112 6.3",
			script: script{clientSends("POST / HTTP/1.0\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"), originReceives(post + "Content-Length: 2\r\n\r\nhi"), originSends(okResponse),
				clientReceives("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"), clientClosed},
		},
		{
			name: "an HTTP/1.0 origin connection ends by default", rfc: "9112 9.3",
			script: script{clientSends(get), originReceives(get), originSends("HTTP/1.0 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nok"), clientReceives(okResponse), originClosed, carriesNextExchange},
		},
		{
			name: "an HTTP/1.0 origin connection persists with keep-alive", rfc: "9112 9.3",
			script: responseBecomes("HTTP/1.0 200 OK\r\nDate: d\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", okResponse),
		},
		{
			name: "an HTTP/1.0 response body ends with its connection", rfc: "9112 6.3",
			script: script{clientSends(get), originReceives(get), originSends("HTTP/1.0 200 OK\r\nDate: d\r\nConnection: keep-alive\r\n\r\nhello"), originCloses,
				clientReceivesChunked(responseStart+"Transfer-Encoding: chunked\r\n\r\n", "hello", ""), carriesNextExchange},
		},
		{
			name: "Proxy-Connection does not keep an HTTP/1.0 connection", rfc: "9112 C.2.2",
			script: script{clientSends("GET / HTTP/1.0\r\nHost: h\r\nProxy-Connection: keep-alive\r\n\r\n"), originReceives(get), originSends(okResponse),
				clientReceives("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"), clientClosed},
		},
	}
}
