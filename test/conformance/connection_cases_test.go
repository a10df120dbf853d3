package conformance

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// answered is the response that announces the close of the client's connection.
const answered = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"

func persistenceCases() []exchange {
	to := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n" }
	says := func(text string) string { return wanted + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(text), text) }
	own := func(s *setup) { s.extra = append(s.extra, direct("/own", 404, "no")) }
	return []exchange{
		{
			name: "a connection carries many exchanges", rfc: "9112 9.3",
			script: joined(passes(get), passes(get), passes(get), passes(get)),
		},
		{
			name: "pipelined requests are answered in order, one by one", rfc: "9112 9.3.2", whole: true,
			script: script{send(to("/1") + to("/2") + to("/3")),
				arrive(to("/1")), quietOrigin, answer(says("one")), receive(says("one")),
				arrive(to("/2")), answer(says("two")), receive(says("two")),
				arrive(to("/3")), answer(says("three")), receive(says("three")), stays},
		},
		{
			name: "pipelined requests with content are told apart", rfc: "9112 9.3.2", whole: true,
			script: script{send(post + "Content-Length: 2\r\n\r\nhi" + postChunked + "2\r\nho\r\n0\r\n\r\n" + "\r\n" + to("/3")),
				arrive(post + "Content-Length: 2\r\n\r\nhi"), answer(ok), receive(ok),
				arriveChunked(postChunked, "ho", ""), answer(ok), receive(ok),
				arrive(to("/3")), answer(ok), receive(ok), stays},
		},
		{
			name: "a pipelined HEAD keeps the answers apart", rfc: "9112 9.3.2", whole: true,
			script: script{send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n" + get),
				arrive("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n"), answer(wanted + "Content-Length: 100\r\n\r\n"), receive(wanted + "Content-Length: 100\r\n\r\n"),
				arrive(get), answer(ok), receive(ok), stays},
		},
		{
			name: "replies of Weft's own keep their place among pipelined answers", rfc: "9112 9.3.2", whole: true, setup: own,
			script: script{send(get + to("/own") + get), arrive(get), answer(ok), receive(ok), reply(404), arrive(get), answer(ok), receive(ok), stays},
		},
		{
			name: "a refusal keeps its place among pipelined answers and is the last", rfc: "9112 9.3.2", whole: true,
			script: script{send(get + "GET / HTTP/1.1\r\n\r\n" + smuggled), arrive(get), answer(ok), receive(ok), refuse(400)},
		},
		{
			name: "a bad answer keeps its place among pipelined answers", rfc: "9112 9.3.2", whole: true,
			script: script{send(get + to("/2") + to("/3")), arrive(get), answer(ok), receive(ok),
				arrive(to("/2")), answer("nonsense\r\n\r\n"), reply(502), originEnds,
				arrive(to("/3")), answer(ok), receive(ok), stays},
		},
		{
			name: "a hundred pipelined requests are answered", rfc: "9112 9.3.2", whole: true, setup: own,
			script: append(append(script{send(strings.Repeat(to("/own"), 100))}, times(100, reply(404))...), stays),
		},
		{
			name: "an interim answer keeps its place among pipelined answers", rfc: "9112 9.3.2", whole: true,
			script: script{send(get + get), arrive(get), answer("HTTP/1.1 103 Early Hints\r\n\r\n" + ok), receive("HTTP/1.1 103 Early Hints\r\n\r\n" + ok), arrive(get), answer(ok), receive(ok), stays},
		},
		{
			name: "bytes behind an answer are no other caller's answer", rfc: "9112 9.3", whole: true,
			script: script{send(get), arrive(get), answer(ok + "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"), receive(ok), originEnds, stays},
		},
		{
			name: "bytes that come late behind an answer are no other caller's answer", rfc: "9112 9.3",
			script: script{send(get), arrive(get), answer(ok), receive(ok), answer("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"), send(get), originEnds, arrive(get), answer(ok), receive(ok), stays},
		},
		{
			name: "bytes behind an answer's last chunk are no other caller's answer", rfc: "9112 9.3", whole: true,
			script: script{send(get), arrive(get), answer(wanted + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
				receiveChunked(wanted+"Transfer-Encoding: chunked\r\n\r\n", "hi", ""), originEnds, stays},
		},
		{
			name: "bytes that an origin sends before it is asked are nobody's answer", rfc: "9112 9.2",
			script: script{send(get), arrive(get), answer(ok), receive(ok), answer(" "), send(get), originEnds, arrive(get), answer(ok), receive(ok)},
		},
		{
			name: "a connection ends behind the requests that it may carry", rfc: "9112 9.6", setup: func(s *setup) { s.MaxRequestsPerConnection = 2 },
			script: script{send(get), arrive(get), answer(ok), receive(ok), send(get), arrive(get), answer(ok), receive(answered), ends, stays},
		},
		{
			name: "an idle connection ends without a word", rfc: "9112 9.5", setup: func(s *setup) { s.idle = 50 * time.Millisecond }, whole: true,
			script: script{send(get), arrive(get), answer(ok), receive(ok), ends},
		},
		{
			name: "a connection on which nothing came ends without a word", rfc: "9112 9.5", setup: func(s *setup) { s.idle = 50 * time.Millisecond }, whole: true,
			script: script{send(""), ends},
		},
	}
}

func times(n int, do step) script {
	all := make(script, n)
	for i := range all {
		all[i] = do
	}
	return all
}

func earlyCases() []exchange {
	own := func(s *setup) { s.extra = append(s.extra, direct("/own", 404, "no")) }
	const large = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n"
	return []exchange{
		{
			name: "an answer before the end of the content ends both connections", rfc: "9112 9.5",
			script: script{send(large + "begun"), arrive(large + "begun"), answer("HTTP/1.1 413 Content Too Large\r\nDate: d\r\nContent-Length: 0\r\n\r\n"),
				receive("HTTP/1.1 413 Content Too Large\r\nDate: d\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), ends, originEnds, stays},
		},
		{
			name: "an answer before the end of chunks ends both connections", rfc: "9112 9.5",
			script: script{send(postChunked + "5\r\nhello\r\n"), arriveBegun(postChunked, "hello"), answer("HTTP/1.1 413 Content Too Large\r\nDate: d\r\nContent-Length: 0\r\n\r\n"),
				receive("HTTP/1.1 413 Content Too Large\r\nDate: d\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), ends, originEnds, stays},
		},
		{
			name: "an early answer may last as long as the content", rfc: "9112 9.5",
			script: script{send(postChunked), arrive(postChunked), answer(wanted + "Transfer-Encoding: chunked\r\n\r\n"), receive(wanted + "Transfer-Encoding: chunked\r\n"), receiveOpenEnd,
				send("1\r\na\r\n"), arrive("1\r\na\r\n"), answer("1\r\nb\r\n"), receive("1\r\nb\r\n"),
				send("1\r\nc\r\n0\r\n\r\n"), arriveChunked("", "c", ""), answer("0\r\n\r\n"), receive("0\r\n\r\n")},
		},
		{
			name: "content behind an early answer is no request", rfc: "9112 9.3", whole: true,
			script: script{send(post + "Content-Length: 42\r\n\r\n"), arrive(post + "Content-Length: 42\r\n\r\n"), answer(ok), receive(answered), send(smuggled), ends, originEndsWithin(smuggled), untouched},
		},
		{
			name: "little content that nobody reads is skipped", rfc: "9112 9.3", setup: own,
			script: script{send("POST /own HTTP/1.1\r\nHost: h\r\nContent-Length: 35\r\n\r\n" + smuggled), reply(404), untouched, stays},
		},
		{
			name: "few chunks that nobody reads are skipped", rfc: "9112 9.3", setup: own, whole: true,
			script: script{send("POST /own HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n23\r\n" + smuggled + "\r\n0\r\n\r\n"), reply(404), untouched, stays},
		},
		{
			name: "much content that nobody reads ends the connection", rfc: "9112 9.6", setup: own,
			script: script{send("POST /own HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n" + smuggled), refuse(404)},
		},
		{
			name: "broken chunks that nobody reads end the connection", rfc: "9112 9.6", setup: own, whole: true,
			script: script{send("POST /own HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nbroken\r\n" + smuggled), refuse(404)},
		},
		{
			name: "content that Weft is still sent when it refuses does not cost the caller the answer", rfc: "9112 9.6", whole: true, setup: own,
			script: script{send("POST /own HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n" + strings.Repeat("x", 500_000)), refuse(404)},
		},
	}
}

// receiveOpenEnd reads the end of a head that may announce the close of the connection: after a
// response to an incomplete request, Weft may do either.
func receiveOpenEnd(r *rig) {
	r.Helper()
	if rest := r.readHeadRest(); rest != "\r\n" && rest != "Connection: close\r\n\r\n" {
		r.Fatalf("the head ends in %q", rest)
	}
}

// arriveBegun verifies that the origin reads a head and the beginning of chunked content,
// regardless of the chunk sizes, without its end.
func arriveBegun(head, content string) step {
	return func(r *rig) {
		r.Helper()
		conn := r.connected()
		r.expect("the origin", conn, head)
		got := ""
		for {
			if data, _, whole := dechunk(got + "0\r\n\r\n"); whole && data == content {
				return
			}
			one := make([]byte, 1)
			if _, err := conn.Read(one); err != nil {
				r.Fatalf("behind the head the origin got\n%s\nthen %v", quote(got), err)
			}
			got += string(one)
		}
	}
}

func goneCases() []exchange {
	const large = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n"
	return []exchange{
		{
			name: "an origin that goes before its answer is a bad one", rfc: "9110 15.6.3",
			script: script{send(get), arrive(get), originGoes, reply(502), stays},
		},
		{
			name: "an origin that goes within its head is a bad one", rfc: "9110 15.6.3",
			script: script{send(get), arrive(get), answer("HTTP/1.1 200 OK\r\nDate: d\r\nContent-"), originGoes, reply(502), stays},
		},
		{
			name: "an origin that goes behind an interim answer is a bad one", rfc: "9110 15.6.3",
			script: script{send(get), arrive(get), answer("HTTP/1.1 103 Early Hints\r\n\r\n"), receive("HTTP/1.1 103 Early Hints\r\n\r\n"), originGoes, reply(502), stays},
		},
		{
			name: "an origin that goes within content of a known length cuts the answer", rfc: "9112 8", whole: true,
			script: script{send(get), arrive(get), answer(wanted + "Content-Length: 10\r\n\r\nhello"), receive(wanted + "Content-Length: 10\r\n\r\nhello"), originGoes, breaks, stays},
		},
		{
			name: "an origin that goes within chunks cuts the answer", rfc: "9112 8", whole: true,
			script: script{send(get), arrive(get), answer(wanted + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"), receive(wanted + "Transfer-Encoding: chunked\r\n\r\n"), originGoes, breaks, stays},
		},
		{
			name: "an origin that goes before the last chunk's end cuts the answer", rfc: "9112 8", whole: true,
			script: script{send(get), arrive(get), answer(wanted + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"), receive(wanted + "Transfer-Encoding: chunked\r\n\r\n"), originGoes, breaks, stays},
		},
		{
			name: "a GET that the origin has read is not sent again", rfc: "9110 9.2.2",
			script: script{send(get), arrive(get), answer(ok), receive(ok), send(get), arrive(get), originGoes, reply(502), untouched, stays},
		},
		{
			name: "a POST that a closing connection may have taken is not sent again", rfc: "9110 9.2.2",
			script: script{send(get), arrive(get), answer(ok), receive(ok), send(post + "Content-Length: 2\r\n\r\nhi"), arrive(post + "Content-Length: 2\r\n\r\nhi"), originGoes, reply(502), untouched, stays},
		},
		{
			name: "a connection that the origin closed while idle is not used", rfc: "9112 9.5",
			script: script{send(get), arrive(get), answer(ok), receive(ok), originGoes,
				send(post + "Content-Length: 2\r\n\r\nhi"), arrive(post + "Content-Length: 2\r\n\r\nhi"), answer(ok), receive(ok), stays},
		},
		{
			name: "an origin that ends its direction within its answer cuts it", rfc: "9112 8", whole: true,
			script: script{send(get), arrive(get), answer(wanted + "Content-Length: 10\r\n\r\nhello"), receive(wanted + "Content-Length: 10\r\n\r\nhello"), originShuts, breaks, originEnds},
		},
		{
			name: "a caller that goes before the answer ends the origin's work", rfc: "9112 9.5", whole: true,
			script: script{send(get), arrive(get), callerGoes, originEnds},
		},
		{
			name: "a caller that goes within its content ends the origin's work", rfc: "9112 8", whole: true,
			script: script{send(large + "begun"), arrive(large + "begun"), callerGoes, originEnds},
		},
		{
			name: "a caller that goes within chunks sends no whole request", rfc: "9112 8", whole: true,
			script: script{send(postChunked + "5\r\nhello\r\n"), arriveBegun(postChunked, "hello"), callerGoes, originEnds},
		},
		{
			name: "a caller that goes within a head is forgotten", rfc: "9112 8", whole: true,
			script: script{send("GET / HTTP/1.1\r\nHo"), callerGoes, untouched},
		},
		{
			name: "a caller that ends its direction within its content has not sent it", rfc: "9112 8", whole: true,
			script: script{send(post + "Content-Length: 10\r\n\r\nhello"), callerShuts, originNeverGotAll},
		},
		{
			name: "a caller that ends its direction is gone", rfc: "configuration", whole: true,
			script: script{send(get), arrive(get), callerShuts, originEnds},
		},
		{
			name: "a caller that ends its direction gets its answer where that is allowed", rfc: "9112 9.6", setup: func(s *setup) { s.AllowHalfClose = true },
			script: script{send(get), callerShuts, arrive(get), answer(ok), receive("HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 2\r\n"), receiveOpenEnd, receive("ok"), ends},
		},
		{
			name: "an origin that does not answer in time is given up", rfc: "9110 15.6.5", setup: func(s *setup) { s.timeout = 100 * time.Millisecond },
			script: script{send(get), arrive(get), reply(504), originEnds},
		},
	}
}

func limitCases() []exchange {
	line := func(n int) string {
		const around = "GET / HTTP/1.1"
		return "GET /" + strings.Repeat("a", n-len(around)) + " HTTP/1.1\r\nHost: h\r\n\r\n"
	}
	head := func(n int) string {
		const around = asked + "X-A: \r\n\r\n"
		return asked + "X-A: " + strings.Repeat("a", n-len(around)) + "\r\n\r\n"
	}
	fields := func(n int) string { return asked + strings.Repeat("X-A: 1\r\n", n-1) + "\r\n" }
	body := func(s *setup) { s.MaxRequestBodySize = 10 }
	cases := []exchange{
		{name: "a request line of 8,000 octets passes", rfc: "9112 3", script: passes(line(8000))},
		{name: "a request line of the limit passes", rfc: "9112 3", script: passes(line(8192))},
		{name: "a longer request line is refused", rfc: "9110 15.5.15", script: script{send(line(8193)), refuse(414)}},
		{name: "a much longer request line is refused", rfc: "9110 15.5.15", whole: true, script: script{send(line(200_000)), refuse(414)}},
		{name: "a request line without end is refused", rfc: "9110 15.5.15", script: script{send("GET /" + strings.Repeat("a", 9000)), refuse(414)}},
		{name: "a method without end is not implemented", rfc: "9112 3", script: script{send(strings.Repeat("A", 9000)), refuse(501)}},
		{name: "a head of the limit passes", rfc: "6585 5", script: passes(head(16 << 10))},
		{name: "a larger head is refused", rfc: "6585 5", script: script{send(head(16<<10 + 1)), refuse(431)}},
		{name: "a much larger head is refused", rfc: "6585 5", whole: true, script: script{send(head(300_000)), refuse(431)}},
		{name: "a head without end is refused", rfc: "6585 5", script: script{send(asked + strings.Repeat("X-A: 1\r\n", 3000)), refuse(431)}},
		{name: "a name without end is refused", rfc: "6585 5", script: script{send(asked + strings.Repeat("a", 17_000)), refuse(431)}},
		{name: "as many fields as the limit pass", rfc: "6585 5", script: passes(fields(100))},
		{name: "more fields are refused", rfc: "6585 5", script: script{send(fields(101)), refuse(431)}},
		{name: "an answer's head of the limit passes", rfc: "9112 2.3", script: returns(wanted + "X-A: " + strings.Repeat("a", 16<<10-len(wanted)-len("X-A: \r\nContent-Length: 0\r\n\r\n")) + "\r\nContent-Length: 0\r\n\r\n")},
		{name: "content of the limit passes", rfc: "9110 15.5.14", setup: body, script: passes(post + "Content-Length: 10\r\n\r\n0123456789")},
		{name: "content that says it is larger is refused", rfc: "9110 15.5.14", setup: body, script: script{send(post + "Content-Length: 11\r\n\r\n0123456789x"), refuse(413)}},
		{name: "content that says it is larger and waits is refused", rfc: "9110 15.5.14", setup: body, script: script{send(post + "Content-Length: 11\r\nExpect: 100-continue\r\n\r\n"), refuse(413)}},
		{name: "chunks of the limit pass", rfc: "9110 15.5.14", setup: body,
			script: script{send(postChunked + "5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n"), arriveChunked(postChunked, "0123456789", ""), answer(ok), receive(ok), stays}},
		{name: "chunks beyond the limit are refused", rfc: "9110 15.5.14", setup: body,
			script: script{send(postChunked + "5\r\n01234\r\n6\r\n56789x\r\n0\r\n\r\n"), refuseOnly(413), originNeverGotAll}},
		{name: "one chunk beyond the limit is refused", rfc: "9110 15.5.14", setup: body,
			script: script{send(postChunked + "b\r\n0123456789x\r\n0\r\n\r\n"), refuseOnly(413), originNeverGotAll}},
	}
	return append(cases, slowCases()...)
}

// slowCases test slow clients and origins. Most are not run byte by byte, because that changes the
// timing.
func slowCases() []exchange {
	const short = 100 * time.Millisecond
	slowHead := func(s *setup) { s.HeadTimeout = short }
	slowBody := func(s *setup) { s.BodyTimeout = short }
	return []exchange{
		{name: "a slow head is refused", rfc: "9110 15.5.9", whole: true, setup: slowHead, script: script{send("GET / HT"), refuse(408)}},
		{name: "a slow field section is refused", rfc: "9110 15.5.9", whole: true, setup: slowHead, script: script{send(asked + "X-A: 1\r\n"), refuse(408)}},
		{name: "a head that trickles is refused", rfc: "9110 15.5.9", whole: true, setup: slowHead,
			script: script{send("GET / HTTP/1.1\r\n"), trickle("X-A: 1\r\n", 20*time.Millisecond), refuse(408)}},
		{name: "slow content of a known length is refused", rfc: "9110 15.5.9", whole: true, setup: slowBody,
			script: script{send(post + "Content-Length: 10\r\n\r\nhello"), refuseOnly(408), originNeverGotAll}},
		{name: "slow chunks are refused", rfc: "9110 15.5.9", whole: true, setup: slowBody,
			script: script{send(postChunked + "5\r\nhel"), refuseOnly(408), originNeverGotAll}},
		{name: "content that trickles ends with its route's time", rfc: "9110 15.6.5", whole: true, setup: func(s *setup) { s.timeout = 3 * short },
			script: script{send(post + "Content-Length: 100000\r\n\r\n"), trickle("x", 20*time.Millisecond), refuseOnly(504), originNeverGotAll}},
		{name: "content that nobody reads and that trickles ends its connection", rfc: "9112 9.5", whole: true,
			setup:  func(s *setup) { s.extra = append(s.extra, direct("/own", 404, "no")) },
			script: script{send("POST /own HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n"), receive("HTTP/1.1 404 Not Found\r\n"), trickleToEnd("x", 50*time.Millisecond), untouched}},
		{name: "an answer that is taken too slowly ends with its route's time", rfc: "configuration", whole: true, setup: func(s *setup) { s.timeout = 20 * short },
			script: script{send(get), arrive(get), answerAside(wanted + "Content-Length: 33554432\r\n\r\n" + strings.Repeat("x", 32<<20)), receive(wanted), sip(50 * time.Millisecond)}},
		{name: "a slow second head is refused", rfc: "9110 15.5.9", whole: true, setup: slowHead,
			script: script{send(get + "GET"), arrive(get), answer(ok), receive(ok), refuse(408)}},
	}
}

// trickle makes the client send text repeatedly until a response arrives.
func trickle(text string, every time.Duration) step {
	return func(r *rig) {
		r.Helper()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for began := time.Now(); !r.answered(); <-tick.C {
			if time.Since(began) > patience {
				r.Fatalf("the caller has trickled for %v", patience)
			}
			r.write(r.call(), text)
		}
	}
}

// trickleToEnd makes the client send text repeatedly until Weft closes the connection.
func trickleToEnd(text string, every time.Duration) step {
	return func(r *rig) {
		r.Helper()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.Copy(io.Discard, r.call())
		}()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for began := time.Now(); ; {
			select {
			case <-ended:
				return
			case <-tick.C:
				r.write(r.call(), text)
			}
			if time.Since(began) > patience-time.Second {
				r.Fatalf("the caller has trickled for %v", time.Since(began))
			}
		}
	}
}

// answerAside makes the origin send text while the script continues.
func answerAside(text string) step {
	return func(r *rig) {
		r.Helper()
		conn := r.connected()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = io.WriteString(conn, text)
		}()
		r.Cleanup(func() {
			r.hangUp()
			<-sent
		})
	}
}

// sip makes the client read a few bytes at a time until Weft closes the origin connection.
func sip(every time.Duration) step {
	return func(r *rig) {
		r.Helper()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.Copy(io.Discard, r.connected())
		}()
		tick := time.NewTicker(every)
		defer tick.Stop()
		one := make([]byte, 8)
		for began := time.Now(); ; {
			select {
			case <-ended:
				return
			case <-tick.C:
				_, _ = r.call().Read(one)
			}
			if time.Since(began) > patience-time.Second {
				r.Fatalf("the caller has sipped for %v", time.Since(began))
			}
		}
	}
}
