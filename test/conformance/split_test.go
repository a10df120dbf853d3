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
	name                   string
	request, response      string
	originStep, clientStep step
	reusesConnection       bool // the client's connection carries the next exchange
}

// TestMessagesSplitAtEveryByte verifies each exchange with each message split in two at every
// position. The second part is sent after Weft has read the first (RFC 9112 2.2).
func TestMessagesSplitAtEveryByte(t *testing.T) {
	for _, c := range splitCases() {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, func(s *setup) { s.network = "unix" })
			for i := range max(len(c.request), len(c.response)) {
				h.runSplit(c, i)
				if t.Failed() {
					t.Fatalf("failed with a split at byte %d", i)
				}
			}
		})
	}
}

// runSplit runs c with both messages split before byte i.
func (h *harness) runSplit(c splitCase, i int) {
	h.Helper()
	h.writeSplit(h.ensureClient(), c.request, i)
	if c.originStep != nil {
		h.dropClosedOrigin()
		c.originStep(h)
		h.writeSplit(h.ensureOrigin(), c.response, i)
	}
	c.clientStep(h)
	if !c.reusesConnection && h.client != nil {
		clientClosed(h)
	}
}

// dropClosedOrigin waits until Weft sends bytes on the origin connection or closes it. It drops a
// closed connection, so that the harness accepts a new one. On a busy machine, the previous upload
// may still run in Weft when its response is complete; Weft then closes the origin connection.
func (h *harness) dropClosedOrigin() {
	if h.origin == nil {
		return
	}
	buf := make([]byte, 1)
	raw, err := h.origin.(syscall.Conn).SyscallConn()
	if err != nil {
		h.Fatal(err)
	}
	n := 0
	err = raw.Read(func(fd uintptr) bool {
		var recvErr error
		n, _, recvErr = unix.Recvfrom(int(fd), buf, unix.MSG_PEEK)
		return !errors.Is(recvErr, unix.EAGAIN)
	})
	if n <= 0 || err != nil {
		_ = h.origin.Close()
		h.origin = nil
	}
}

// writeSplit sends text in two parts.
func (h *harness) writeSplit(conn net.Conn, text string, i int) {
	h.Helper()
	i = min(i, len(text))
	h.write(conn, text[:i])
	h.awaitRead(conn)
	h.write(conn, text[i:])
}

// awaitRead waits until the other side of a Unix socket has read all sent bytes.
func (h *harness) awaitRead(conn net.Conn) {
	h.Helper()
	for start := time.Now(); socketQueueLen(h, conn, unix.SIOCOUTQ) > 0; runtime.Gosched() {
		if time.Since(start) > waitTimeout {
			h.Fatal("Weft did not read the sent bytes")
		}
	}
}

func splitCases() []splitCase {
	const chunked = "Transfer-Encoding: chunked\r\n\r\n"
	return []splitCase{
		{
			name:    "heads and bodies",
			request: post + "X-A: 1\r\nConnection: x-b\r\nX-b: 2\r\nContent-Length: 5\r\n\r\nhello", originStep: originReceives(post + "X-A: 1\r\nContent-Length: 5\r\n\r\nhello"),
			response: responseStart + "Connection: x-b\r\nX-C: 1\r\nx-b: 2\r\nContent-Length: 5\r\n\r\nworld", clientStep: clientReceives(responseStart + "X-C: 1\r\nContent-Length: 5\r\n\r\nworld"),
			reusesConnection: true,
		},
		{
			name:    "chunks and trailer sections",
			request: postChunked + "5;a=b\r\nhello\r\n00a\r\n0123456789\r\n0;c\r\nX-T: 1\r\n\r\n", originStep: originReceivesChunked(postChunked, "hello0123456789", "X-T: 1\r\n"),
			response: responseStart + chunked + "1\r\n!\r\n5 ;a\r\nworld\r\n0\r\nX-U: 1\r\n\r\n", clientStep: clientReceivesChunked(responseStart+chunked, "!world", "X-U: 1\r\n"),
			reusesConnection: true,
		},
		{
			name:    "an empty line before the request, and interim responses",
			request: "\r\n" + get, originStep: originReceives(get),
			response:         "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + okResponse,
			clientStep:       clientReceives("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + okResponse),
			reusesConnection: true,
		},
		{
			name:    "HEAD, and an absolute target",
			request: "HEAD http://h.test:81/a%20b HTTP/1.1\r\nHost: other\r\n\r\n", originStep: originReceives("HEAD /a%20b HTTP/1.1\r\nHost: h.test:81\r\n\r\n"),
			response: responseStart + "Content-Length: 1000\r\n\r\n", clientStep: clientReceives(responseStart + "Content-Length: 1000\r\n\r\n"),
			reusesConnection: true,
		},
		{
			name:    "HTTP/1.0",
			request: "POST / HTTP/1.0\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi", originStep: originReceives(post + "Content-Length: 2\r\n\r\nhi"),
			response: okResponse, clientStep: clientReceives(closingResponse),
		},
		{
			name: "an attack with both framings", request: post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
			clientStep: rejected(400),
		},
		{
			name: "an attack with a bare LF", request: "GET / HTTP/1.1\r\nHost: h\r\nX-A: 1\nX-B: 2\r\n\r\n" + smuggled,
			clientStep: rejected(400),
		},
		{
			name: "an attack with a folded line", request: "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + smuggled,
			clientStep: rejected(400),
		},
		{
			name: "an attack with a chunk size", request: postChunked + "5\r\nhello\r\n0x5\r\nhello\r\n0\r\n\r\n" + smuggled,
			clientStep: chunksRejected,
		},
		{
			name:    "a response with both framings",
			request: get, originStep: originReceives(get),
			response: responseStart + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", clientStep: badGateway,
			reusesConnection: true,
		},
	}
}

// chunksRejected verifies that Weft rejects a body of which the origin may have received a part.
func chunksRejected(h *harness) {
	h.Helper()
	rejectedOnly(400)(h)
	originMessageIncomplete(h)
}

// badGateway verifies that Weft responds with 502 and closes the origin connection.
func badGateway(h *harness) {
	h.Helper()
	localReplyKeepAlive(502)(h)
	originClosed(h)
}
