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

// conversation is an exchange whose messages may be split anywhere: the result does not depend on
// how the bytes arrive.
type conversation struct {
	name              string
	request, response string
	arrives, returns  step
	again             bool // the client's connection carries the next exchange
}

// TestMessagesMayBeCutAnywhere verifies each conversation with each message split in two at every
// position; the second part is sent after Weft has read the first (RFC 9112 2.2).
func TestMessagesMayBeCutAnywhere(t *testing.T) {
	for _, c := range conversations() {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, func(s *setup) { s.network = "unix" })
			for i := range max(len(c.request), len(c.response)) {
				r.converse(c, i)
				if t.Failed() {
					t.Fatalf("cut at byte %d", i)
				}
			}
		})
	}
}

// converse runs c with both messages split before byte i.
func (r *rig) converse(c conversation, i int) {
	r.Helper()
	r.cutAt(r.call(), c.request, i)
	if c.arrives != nil {
		r.again()
		c.arrives(r)
		r.cutAt(r.connected(), c.response, i)
	}
	c.returns(r)
	if !c.again && r.caller != nil {
		ends(r)
	}
}

// again drops the origin connection if Weft has closed it, so that a new one is accepted: on a busy
// machine Weft may give up the connection of an upload that ends late.
func (r *rig) again() {
	if r.origin == nil {
		return
	}
	one := make([]byte, 1)
	raw, err := r.origin.(syscall.Conn).SyscallConn()
	if err != nil {
		r.Fatal(err)
	}
	n := 0
	err = raw.Read(func(fd uintptr) bool {
		var failed error
		n, _, failed = unix.Recvfrom(int(fd), one, unix.MSG_PEEK)
		return !errors.Is(failed, unix.EAGAIN)
	})
	if n <= 0 || err != nil {
		_ = r.origin.Close()
		r.origin = nil
	}
}

// cutAt sends text in two parts.
func (r *rig) cutAt(conn net.Conn, text string, i int) {
	r.Helper()
	i = min(i, len(text))
	r.write(conn, text[:i])
	r.taken(conn)
	r.write(conn, text[i:])
}

// taken waits until the other side of a Unix socket has read all sent bytes.
func (r *rig) taken(conn net.Conn) {
	r.Helper()
	for began := time.Now(); queued(r, conn, unix.SIOCOUTQ) > 0; runtime.Gosched() {
		if time.Since(began) > patience {
			r.Fatal("Weft does not read")
		}
	}
}

func conversations() []conversation {
	const chunked = "Transfer-Encoding: chunked\r\n\r\n"
	return []conversation{
		{
			name:    "heads and content",
			request: post + "X-A: 1\r\nConnection: x-b\r\nX-b: 2\r\nContent-Length: 5\r\n\r\nhello", arrives: arrive(post + "X-A: 1\r\nContent-Length: 5\r\n\r\nhello"),
			response: wanted + "Connection: x-b\r\nX-C: 1\r\nx-b: 2\r\nContent-Length: 5\r\n\r\nworld", returns: receive(wanted + "X-C: 1\r\nContent-Length: 5\r\n\r\nworld"),
			again: true,
		},
		{
			name:    "chunks and trailer sections",
			request: postChunked + "5;a=b\r\nhello\r\n00a\r\n0123456789\r\n0;c\r\nX-T: 1\r\n\r\n", arrives: arriveChunked(postChunked, "hello0123456789", "X-T: 1\r\n"),
			response: wanted + chunked + "1\r\n!\r\n5 ;a\r\nworld\r\n0\r\nX-U: 1\r\n\r\n", returns: receiveChunked(wanted+chunked, "!world", "X-U: 1\r\n"),
			again: true,
		},
		{
			name:    "an empty line before the request, and interim answers",
			request: "\r\n" + get, arrives: arrive(get),
			response: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok,
			returns:  receive("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok),
			again:    true,
		},
		{
			name:    "HEAD, and an absolute target",
			request: "HEAD http://h.test:81/a%20b HTTP/1.1\r\nHost: other\r\n\r\n", arrives: arrive("HEAD /a%20b HTTP/1.1\r\nHost: h.test:81\r\n\r\n"),
			response: wanted + "Content-Length: 1000\r\n\r\n", returns: receive(wanted + "Content-Length: 1000\r\n\r\n"),
			again: true,
		},
		{
			name:    "HTTP/1.0",
			request: "POST / HTTP/1.0\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi", arrives: arrive(post + "Content-Length: 2\r\n\r\nhi"),
			response: ok, returns: receive(answered),
		},
		{
			name: "an attack by both framings", request: post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
			returns: refuse(400),
		},
		{
			name: "an attack by a bare LF", request: "GET / HTTP/1.1\r\nHost: h\r\nX-A: 1\nX-B: 2\r\n\r\n" + smuggled,
			returns: refuse(400),
		},
		{
			name: "an attack by a folded line", request: "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + smuggled,
			returns: refuse(400),
		},
		{
			name: "an attack by a chunk's size", request: postChunked + "5\r\nhello\r\n0x5\r\nhello\r\n0\r\n\r\n" + smuggled,
			returns: refuseChunks,
		},
		{
			name:    "an answer with both framings",
			request: get, arrives: arrive(get),
			response: wanted + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", returns: badAnswer,
			again: true,
		},
	}
}

// refuseChunks verifies that Weft rejects content of which the origin may have received a part.
func refuseChunks(r *rig) {
	r.Helper()
	refuseOnly(400)(r)
	originNeverGotAll(r)
}

// badAnswer verifies that Weft responds with 502 and closes the origin connection.
func badAnswer(r *rig) {
	r.Helper()
	reply(502)(r)
	originEnds(r)
}
