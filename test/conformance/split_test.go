package conformance

import (
	"errors"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// splitCase is an exchange whose messages may be split anywhere: the result does not depend on
// how the bytes arrive.
type splitCase struct {
	name              string
	request, response string
	arrives, returns  step
	reusesConnection  bool // the client's connection carries the next exchange
}

// TestMessagesSplitAtEveryByte verifies each exchange with each message split in two at every
// position. The second part is sent after Weft has read the first (RFC 9112 2.2).
func TestMessagesSplitAtEveryByte(t *testing.T) {
	for _, c := range splitCases() {
		t.Run(c.name, func(t *testing.T) {
			r := newHarness(t, func(s *setup) { s.network = "unix" })
			for i := range max(len(c.request), len(c.response)) {
				r.runSplit(c, i)
				if t.Failed() {
					t.Fatalf("truncated at byte %d", i)
				}
			}
		})
	}
}

// runSplit runs c with both messages split before byte i.
func (r *harness) runSplit(c splitCase, i int) {
	r.Helper()
	r.writeSplit(r.ensureClient(), c.request, i)
	if c.arrives != nil {
		r.dropClosedOrigin()
		c.arrives(r)
		r.writeSplit(r.ensureOrigin(), c.response, i)
	}
	c.returns(r)
	if !c.reusesConnection && r.client != nil {
		clientClosed(r)
	}
}

// dropClosedOrigin drops the origin connection if Weft has closed it, so that a new one is
// accepted. On a busy machine Weft may close the connection of an upload that ends late.
func (r *harness) dropClosedOrigin() {
	if r.origin == nil {
		return
	}
	first := make([]byte, 1)
	raw, err := r.origin.(syscall.Conn).SyscallConn()
	if err != nil {
		r.Fatal(err)
	}
	n := 0
	err = raw.Read(func(fd uintptr) bool {
		var failed error
		n, _, failed = unix.Recvfrom(int(fd), first, unix.MSG_PEEK)
		return !errors.Is(failed, unix.EAGAIN)
	})
	if n <= 0 || err != nil {
		_ = r.origin.Close()
		r.origin = nil
	}
}

// writeSplit sends text in two parts.
func (r *harness) writeSplit(conn net.Conn, text string, i int) {
	r.Helper()
	i = min(i, len(text))
	r.write(conn, text[:i])
	r.awaitRead(conn)
	r.write(conn, text[i:])
}

// awaitRead waits until the other side of a Unix socket has read all sent bytes.
func (r *harness) awaitRead(conn net.Conn) {
	r.Helper()
	for start := time.Now(); socketQueueLen(r, conn, unix.SIOCOUTQ) > 0; runtime.Gosched() {
		if time.Since(start) > waitTimeout {
			r.Fatal("Weft did not read the sent bytes")
		}
	}
}

func splitCases() []splitCase {
	const chunked = "Transfer-Encoding: chunked\r\n\r\n"
	return []splitCase{
		{
			name:    "heads and bodies",
			request: post + "X-A: 1\r\nConnection: x-b\r\nX-b: 2\r\nContent-Length: 5\r\n\r\nhello", arrives: originReceives(post + "X-A: 1\r\nContent-Length: 5\r\n\r\nhello"),
			response: responseStart + "Connection: x-b\r\nX-C: 1\r\nx-b: 2\r\nContent-Length: 5\r\n\r\nworld", returns: clientReceives(responseStart + "X-C: 1\r\nContent-Length: 5\r\n\r\nworld"),
			reusesConnection: true,
		},
		{
			name:    "chunks and trailer sections",
			request: postChunked + "5;a=b\r\nhello\r\n00a\r\n0123456789\r\n0;c\r\nX-T: 1\r\n\r\n", arrives: originReceivesChunked(postChunked, "hello0123456789", "X-T: 1\r\n"),
			response: responseStart + chunked + "1\r\n!\r\n5 ;a\r\nworld\r\n0\r\nX-U: 1\r\n\r\n", returns: clientReceivesChunked(responseStart+chunked, "!world", "X-U: 1\r\n"),
			reusesConnection: true,
		},
		{
			name:    "an empty line before the request, and interim responses",
			request: "\r\n" + get, arrives: originReceives(get),
			response:         "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + okResponse,
			returns:          clientReceives("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + okResponse),
			reusesConnection: true,
		},
		{
			name:    "HEAD, and an absolute target",
			request: "HEAD http://h.test:81/a%20b HTTP/1.1\r\nHost: other\r\n\r\n", arrives: originReceives("HEAD /a%20b HTTP/1.1\r\nHost: h.test:81\r\n\r\n"),
			response: responseStart + "Content-Length: 1000\r\n\r\n", returns: clientReceives(responseStart + "Content-Length: 1000\r\n\r\n"),
			reusesConnection: true,
		},
		{
			name:    "HTTP/1.0",
			request: "POST / HTTP/1.0\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi", arrives: originReceives(post + "Content-Length: 2\r\n\r\nhi"),
			response: okResponse, returns: clientReceives(closingResponse),
		},
		{
			name: "an attack with both framings", request: post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
			returns: rejected(400),
		},
		{
			name: "an attack with a bare LF", request: "GET / HTTP/1.1\r\nHost: h\r\nX-A: 1\nX-B: 2\r\n\r\n" + smuggled,
			returns: rejected(400),
		},
		{
			name: "an attack with a folded line", request: "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + smuggled,
			returns: rejected(400),
		},
		{
			name: "an attack with a chunk size", request: postChunked + "5\r\nhello\r\n0x5\r\nhello\r\n0\r\n\r\n" + smuggled,
			returns: chunksRejected,
		},
		{
			name:    "a response with both framings",
			request: get, arrives: originReceives(get),
			response: responseStart + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", returns: badGateway,
			reusesConnection: true,
		},
	}
}

// chunksRejected verifies that Weft rejects content of which the origin may have received a part.
func chunksRejected(r *harness) {
	r.Helper()
	rejectedOnly(400)(r)
	originMessageIncomplete(r)
}

// badGateway verifies that Weft responds with 502 and closes the origin connection.
func badGateway(r *harness) {
	r.Helper()
	localReplyKeepAlive(502)(r)
	originClosed(r)
}
