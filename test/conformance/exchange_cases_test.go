package conformance

import "strings"

func interimCases() []exchange {
	const put = "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
	const goOn = "HTTP/1.1 100 Continue\r\n\r\n"
	return []exchange{
		{
			name: "interim answers pass, all of them", rfc: "9110 15.2",
			script: returns("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </b>\r\nLink: </c>\r\n\r\n" + ok),
		},
		{
			name: "an interim answer passes at once", rfc: "9110 15.2",
			script: script{send(get), arrive(get), answer("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
				receive("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"), answer(ok), receive(ok), stays},
		},
		{
			name: "100 passes though nobody asked for it", rfc: "9110 15.2",
			script: returns(goOn + ok),
		},
		{
			name: "a hundred interim answers pass", rfc: "9110 15.2",
			script: returns(strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 100) + ok),
		},
		{
			name: "an HTTP/1.0 caller gets no interim answers", rfc: "9110 15.2",
			script: script{send("GET / HTTP/1.0\r\nHost: h\r\n\r\n"), arrive(get), answer(goOn + "HTTP/1.1 103 Early Hints\r\n\r\n" + ok),
				receive("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"), ends, stays},
		},
		{
			name: "an interim answer that speaks of content is bad", rfc: "9112 6.3",
			script: script{send(get), arrive(get), answer("HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nhello" + ok), reply(502), originEnds, stays},
		},
		{
			name: "an interim answer that speaks of chunks is bad", rfc: "9112 6.1",
			script: script{send(get), arrive(get), answer("HTTP/1.1 100 Continue\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + ok), reply(502), originEnds, stays},
		},
		{
			name: "an expectation is passed on, and what the origin says to it", rfc: "9110 10.1.1",
			script: script{send(put), arrive(put), answer(goOn), receive(goOn), send("hello"), arrive("hello"), answer(ok), receive(ok), stays},
		},
		{
			name: "an expectation is written in any case", rfc: "9110 10.1.1",
			script: script{send(strings.Replace(put, "100-continue", "100-CONTINUE", 1)), arrive(put), answer(goOn), receive(goOn), send("hello"), arrive("hello"), answer(ok), receive(ok), stays},
		},
		{
			name: "a chunked upload may wait for its expectation", rfc: "9110 10.1.1",
			script: script{send(post + "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"), arrive(post + "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"),
				answer(goOn), receive(goOn), send("2\r\nhi\r\n0\r\n\r\n"), arriveChunked("", "hi", ""), answer(ok), receive(ok), stays},
		},
		{
			name: "who expects need not wait", rfc: "9110 10.1.1", whole: true,
			script: script{send(put + "hello"), arrive(put), arrive("hello"), answer(goOn + ok), receive(goOn + ok), stays},
		},
		{
			name: "an origin may answer finally without 100", rfc: "9110 10.1.1",
			script: script{send(put), arrive(put), send("hello"), arrive("hello"), answer(ok), receive(ok), stays},
		},
		{
			name: "a refusal instead of 100 ends both connections, for content may follow or not", rfc: "9110 10.1.1",
			script: script{send(put), arrive(put), answer("HTTP/1.1 417 Expectation Failed\r\nDate: d\r\nContent-Length: 2\r\n\r\nno"),
				receive("HTTP/1.1 417 Expectation Failed\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"), ends, originEnds, stays},
		},
		{
			name: "content behind a refusal is no request", rfc: "9110 10.1.1",
			script: script{send(post + "Content-Length: 42\r\nExpect: 100-continue\r\n\r\n"), arrive(post + "Content-Length: 42\r\nExpect: 100-continue\r\n\r\n"),
				answer("HTTP/1.1 413 Content Too Large\r\nDate: d\r\nContent-Length: 0\r\n\r\n"),
				receive("HTTP/1.1 413 Content Too Large\r\nDate: d\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), send(smuggled), ends, originEndsWithin(smuggled), untouched},
		},
		{
			name: "a reply of Weft's own instead of 100 ends the connection", rfc: "9110 10.1.1", setup: func(s *setup) { s.extra = append(s.extra, direct("/own", 403, "no")) },
			script: script{send("PUT /own HTTP/1.1\r\nHost: h\r\nContent-Length: 42\r\nExpect: 100-continue\r\n\r\n"), refuse(403)},
		},
		{
			name: "another expectation is refused", rfc: "9110 10.1.1",
			script: script{send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 200-ok\r\n\r\nhello"), refuse(417)},
		},
		{
			name: "an expectation in HTTP/1.0 is ignored", rfc: "9110 10.1.1",
			script: script{send("PUT / HTTP/1.0\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello"), arrive("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"),
				answer(ok), receive("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"), ends, stays},
		},
		{
			name: "an expectation without content is not passed on", rfc: "9110 10.1.1",
			script: becomes(asked+"Expect: 100-continue\r\n\r\n", get),
		},
	}
}

func noContentCases() []exchange {
	const head = "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n"
	toHead := func(response, seen string) script {
		return script{send(head), arrive(head), answer(response), receive(seen), stays}
	}
	return []exchange{
		{
			name: "an answer to HEAD keeps its length and has no content", rfc: "9112 6.3",
			script: toHead(wanted+"Content-Length: 1000\r\n\r\n", wanted+"Content-Length: 1000\r\n\r\n"),
		},
		{
			name: "an answer to HEAD may keep silent on its length", rfc: "9112 6.3",
			script: toHead(wanted+"\r\n", wanted+"\r\n"),
		},
		{
			name: "an answer to HEAD may speak of chunks and has none", rfc: "9112 6.3",
			script: script{send(head), arrive(head), answer(wanted + "Transfer-Encoding: chunked\r\n\r\n"), receive(wanted), receiveEmptyLine, stays},
		},
		{
			name: "content behind an answer to HEAD is nobody's", rfc: "9112 6.3", whole: true,
			script: script{send(head), arrive(head), answer(wanted + "Content-Length: 5\r\n\r\nhello"), receive(wanted + "Content-Length: 5\r\n\r\n"), originEnds, stays},
		},
		{
			name: "HEAD may have content", rfc: "9110 9.3.2",
			script: script{send("HEAD / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"), arrive("HEAD / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"),
				answer(wanted + "Content-Length: 9\r\n\r\n"), receive(wanted + "Content-Length: 9\r\n\r\n"), stays},
		},
		{
			name: "a reply of Weft's own to HEAD has no content", rfc: "9112 6.3", setup: func(s *setup) { s.extra = append(s.extra, direct("/own", 404, "no")) },
			script: script{send("HEAD /own HTTP/1.1\r\nHost: h\r\n\r\n"), reply(404), stays},
		},
		{
			name: "a refusal of HEAD has no content", rfc: "9112 6.3",
			script: script{send(head), arrive(head), answer("nonsense\r\n\r\n"), reply(502), originEnds, stays},
		},
		{
			name: "204 has no content", rfc: "9112 6.3",
			script: returns("HTTP/1.1 204 No Content\r\nDate: d\r\n\r\n"),
		},
		{
			name: "204 has no length", rfc: "9110 8.6",
			script: turns("HTTP/1.1 204 No Content\r\nDate: d\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 204 No Content\r\nDate: d\r\n\r\n"),
		},
		{
			name: "204 that speaks of content has none, and ends its connection", rfc: "9112 6.3",
			script: script{send(get), arrive(get), answer("HTTP/1.1 204 No Content\r\nDate: d\r\nContent-Length: 5\r\n\r\nhello"),
				receive("HTTP/1.1 204 No Content\r\nDate: d\r\n\r\n"), originEnds, stays},
		},
		{
			name: "204 that speaks of chunks has none, and ends its connection", rfc: "9112 6.1",
			script: script{send(get), arrive(get), answer("HTTP/1.1 204 No Content\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
				receive("HTTP/1.1 204 No Content\r\nDate: d\r\n\r\n"), originEnds, stays},
		},
		{
			name: "304 keeps the length of what it does not send", rfc: "9110 8.6",
			script: returns("HTTP/1.1 304 Not Modified\r\nDate: d\r\nETag: \"a\"\r\nContent-Length: 1000\r\n\r\n"),
		},
		{
			name: "304 without a length gets none", rfc: "9110 15.4.5",
			script: returns("HTTP/1.1 304 Not Modified\r\nDate: d\r\n\r\n"),
		},
		{
			name: "content behind 304 is nobody's", rfc: "9112 6.3", whole: true,
			script: script{send(get), arrive(get), answer("HTTP/1.1 304 Not Modified\r\nDate: d\r\nContent-Length: 5\r\n\r\nhello"),
				receive("HTTP/1.1 304 Not Modified\r\nDate: d\r\nContent-Length: 5\r\n\r\n"), originEnds, stays},
		},
		{
			name: "205 may have a length of nothing", rfc: "9110 15.3.6",
			script: returns("HTTP/1.1 205 Reset Content\r\nDate: d\r\nContent-Length: 0\r\n\r\n"),
		},
	}
}

// receiveEmptyLine reads the end of a head that may contain Transfer-Encoding.
func receiveEmptyLine(r *rig) {
	r.Helper()
	if rest := r.readHeadRest(); rest != "\r\n" && rest != "Transfer-Encoding: chunked\r\n\r\n" {
		r.Fatalf("the head ends in %q", rest)
	}
}

func tunnelCases() []exchange {
	const ask = asked + "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
	const switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
	const connect = "CONNECT db.test:5432 HTTP/1.1\r\nHost: db.test:5432\r\n\r\n"
	const connected = "HTTP/1.1 200 OK\r\nDate: d\r\n\r\n"
	connects := func(s *setup) { s.AllowConnect = true }
	upgraded := script{send(ask), arrive(ask), answer("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"), receiveSwitched(switched)}
	return []exchange{
		{
			name: "an upgrade is passed on, and becomes a tunnel both ways", rfc: "9110 7.8",
			script: joined(upgraded, script{answer("\x00one\r\n\r\n"), receive("\x00one\r\n\r\n"), send("two\xff"), arrive("two\xff"), send(smuggled), arrive(smuggled)}),
		},
		{
			name: "a tunnel ends with the caller's connection", rfc: "9110 9.3.6",
			script: joined(upgraded, script{send("a"), callerGoes, arrive("a"), originEnds}),
		},
		{
			name: "a tunnel ends with the origin's connection", rfc: "9110 9.3.6",
			script: joined(upgraded, script{answer("a"), originGoes, receive("a"), ends}),
		},
		{
			name: "a tunnel's directions end one by one", rfc: "9110 9.3.6",
			script: joined(upgraded, script{callerShuts, originReadsEnd, answer("late"), receive("late"), originGoes, ends}),
		},
		{
			name: "what comes with a 101 is the tunnel's", rfc: "9110 7.8", whole: true,
			script: script{send(ask), arrive(ask), answer("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello"),
				receiveSwitched(switched), receive("hello")},
		},
		{
			name: "nothing is sent behind an upgrade before it is granted", rfc: "9110 7.8", whole: true,
			script: script{send(ask + "early"), arrive(ask), quietOrigin, answer("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
				receiveSwitched(switched), arrive("early")},
		},
		{
			name: "an upgrade that the origin ignores is an exchange like others", rfc: "9110 7.8",
			script: script{send(ask), arrive(ask), answer(ok), receive(ok), stays},
		},
		{
			name: "what follows an upgrade that the origin ignores is a request", rfc: "9110 7.8", whole: true,
			script: script{send(ask + get), arrive(ask), quietOrigin, answer(ok), receive(ok), arrive(get), answer(ok), receive(ok), stays},
		},
		{
			name: "101 to who did not ask is bad", rfc: "9110 15.2.2",
			script: script{send(get), arrive(get), answer("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"), reply(502), originEnds, stays},
		},
		{
			name: "101 to a protocol that was not asked for is bad", rfc: "9110 7.8",
			script: script{send(ask), arrive(ask), answer("HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n"), reply(502), originEnds, stays},
		},
		{
			name: "101 that does not say to what is bad", rfc: "9110 15.2.2",
			script: script{send(ask), arrive(ask), answer("HTTP/1.1 101 Switching Protocols\r\n\r\n"), reply(502), originEnds, stays},
		},
		{
			name: "an upgrade to h2c is not passed on", rfc: "9110 7.8",
			script: becomes(asked+"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", get),
		},
		{
			name: "an upgrade to h2c among others is not passed on", rfc: "9110 7.8",
			script: becomes(asked+"Connection: upgrade\r\nUpgrade: websocket, H2C\r\n\r\n", get),
		},
		{
			name: "Upgrade that Connection does not name is not passed on", rfc: "9110 7.8",
			script: becomes(asked+"Upgrade: websocket\r\n\r\n", get),
		},
		{
			name: "an upgrade in HTTP/1.0 is ignored", rfc: "9110 7.8",
			script: script{send("GET / HTTP/1.0\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"), arrive(get), answer(ok),
				receive("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"), ends, stays},
		},
		{
			name: "426 keeps the protocols that it wants", rfc: "9110 15.5.22",
			script: script{send(get), arrive(get), answer("HTTP/1.1 426 Upgrade Required\r\nDate: d\r\nUpgrade: foo/2\r\nConnection: upgrade\r\nContent-Length: 0\r\n\r\n"),
				receive("HTTP/1.1 426 Upgrade Required\r\nDate: d\r\nUpgrade: foo/2\r\nContent-Length: 0\r\nConnection: upgrade\r\n\r\n"), stays},
		},
		{
			name: "CONNECT becomes a tunnel where it is allowed", rfc: "9110 9.3.6", setup: connects,
			script: script{send(connect), arrive(connect), answer(connected), receive("HTTP/1.1 200 OK\r\nDate: d\r\n\r\n"), answer("\x00one"), receive("\x00one"), send("two"), arrive("two")},
		},
		{
			name: "no early data behind CONNECT is sent before its 2xx", rfc: "9110 9.3.6", setup: connects, whole: true,
			script: script{send(connect + "early"), arrive(connect), quietOrigin, answer(connected), receive(connected), arrive("early")},
		},
		{
			name: "the length of a 2xx to CONNECT means nothing", rfc: "9110 9.3.6", setup: connects, whole: true,
			script: script{send(connect), arrive(connect), answer("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nhello"), receive(connected + "hello"), send("two"), arrive("two")},
		},
		{
			name: "CONNECT that the origin refuses is an exchange like others", rfc: "9110 9.3.6", setup: connects,
			script: script{send(connect), arrive(connect), answer("HTTP/1.1 403 Forbidden\r\nDate: d\r\nContent-Length: 2\r\n\r\nno"), receive("HTTP/1.1 403 Forbidden\r\nDate: d\r\nContent-Length: 2\r\n\r\nno"), stays},
		},
	}
}

func oldVersionCases() []exchange {
	const old = "GET / HTTP/1.0\r\nHost: h\r\n\r\n"
	const oldKept = "GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n"
	return []exchange{
		{
			name: "an HTTP/1.0 caller's connection ends by default", rfc: "9112 9.3",
			script: script{send(old), arrive(get), answer(ok), receive("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"), ends, stays},
		},
		{
			name: "an HTTP/1.0 caller's connection stays if it asks for that", rfc: "9112 9.3",
			script: script{send(oldKept), arrive(get), answer(ok), receive("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok"), stays},
		},
		{
			name: "an HTTP/1.0 caller may lack Host", rfc: "9112 3.2",
			script: script{send("GET / HTTP/1.0\r\n\r\n"), arrive("GET / HTTP/1.1\r\nHost: \r\n\r\n"), answer(ok), receive("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"), ends},
		},
		{
			name: "an HTTP/1.0 caller gets no chunks", rfc: "9112 6.1",
			script: script{send(old), arrive(get), answer(wanted + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n3\r\nyou\r\n0\r\nX-A: 1\r\n\r\n"),
				receive("HTTP/1.1 200 OK\r\nDate: d\r\nConnection: close\r\n\r\nhiyou"), ends, stays},
		},
		{
			name: "an HTTP/1.0 caller's connection ends behind content of unknown length", rfc: "9112 9.3",
			script: script{send(oldKept), arrive(get), answer(wanted + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
				receive("HTTP/1.1 200 OK\r\nDate: d\r\nConnection: close\r\n\r\nhi"), ends, stays},
		},
		{
			name: "content for an HTTP/1.0 caller that is cut ends in a reset", rfc: "9112 8", whole: true,
			script: script{send(old), arrive(get), answer(wanted + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"), receive("HTTP/1.1 200 OK\r\nDate: d\r\nConnection: close\r\n\r\nhi"), originGoes, isReset},
		},
		{
			name: "chunks in HTTP/1.0 are refused", rfc: "9112 6.1",
			script: script{send("POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), refuse(400)},
		},
		{
			name: "chunks in an HTTP/1.0 answer are bad", rfc: "9112 6.1",
			script: script{send(get), arrive(get), answer("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), reply(502), originEnds, stays},
		},
		{
			name: "an HTTP/1.0 POST has content", rfc: "9112 6.3",
			script: script{send("POST / HTTP/1.0\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"), arrive(post + "Content-Length: 2\r\n\r\nhi"), answer(ok),
				receive("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"), ends},
		},
		{
			name: "an HTTP/1.0 origin's connection ends by default", rfc: "9112 9.3",
			script: script{send(get), arrive(get), answer("HTTP/1.0 200 OK\r\nDate: d\r\nContent-Length: 2\r\n\r\nok"), receive(ok), originEnds, stays},
		},
		{
			name: "an HTTP/1.0 origin's connection stays if it says so", rfc: "9112 9.3",
			script: turns("HTTP/1.0 200 OK\r\nDate: d\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", ok),
		},
		{
			name: "an HTTP/1.0 answer lasts until its connection ends", rfc: "9112 6.3",
			script: script{send(get), arrive(get), answer("HTTP/1.0 200 OK\r\nDate: d\r\nConnection: keep-alive\r\n\r\nhello"), originGoes,
				receiveChunked(wanted+"Transfer-Encoding: chunked\r\n\r\n", "hello", ""), stays},
		},
		{
			name: "Proxy-Connection does not keep an HTTP/1.0 connection", rfc: "9112 C.2.2",
			script: script{send("GET / HTTP/1.0\r\nHost: h\r\nProxy-Connection: keep-alive\r\n\r\n"), arrive(get), answer(ok),
				receive("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"), ends},
		},
	}
}
