package conformance

import (
	"bufio"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// script is a list of steps on both sides of Weft, in order.
type script []step

type step func(r *harness)

// clientSends makes the client send text.
func clientSends(text string) step {
	return func(h *harness) {
		h.Helper()
		h.method, _, _ = strings.Cut(text, " ")
		h.write(h.ensureClient(), text)
	}
}

// originReceives verifies that the origin reads exactly text.
func originReceives(text string) step {
	return func(h *harness) {
		h.Helper()
		h.expect("the origin", h.ensureOrigin(), text)
	}
}

// originSends makes the origin send text.
func originSends(text string) step {
	return func(h *harness) {
		h.Helper()
		h.write(h.ensureOrigin(), text)
	}
}

// clientReceives verifies that the client reads exactly text.
func clientReceives(text string) step {
	return func(h *harness) {
		h.Helper()
		h.expect("the client", h.ensureClient(), text)
	}
}

// originReceivesChunked verifies that the origin reads a head and a chunked body with a trailer
// section, regardless of the chunk sizes.
func originReceivesChunked(head, body, trailer string) step {
	return func(h *harness) {
		h.Helper()
		h.expectChunked("the origin", h.ensureOrigin(), head, body, trailer)
	}
}

// clientReceivesChunked is originReceivesChunked for the client.
func clientReceivesChunked(head, body, trailer string) step {
	return func(h *harness) {
		h.Helper()
		h.expectChunked("the client", h.ensureClient(), head, body, trailer)
	}
}

// clientClosed verifies that Weft closes the client's connection with a FIN and sends nothing more.
func clientClosed(h *harness) {
	h.Helper()
	if got, orderly := h.readToEnd("the client", h.ensureClient()); got != "" || !orderly {
		h.Fatalf("before the close (orderly: %t) the client got\n%s", orderly, quote(got))
	}
	_ = h.client.Close()
	h.client = nil
}

// clientTruncated verifies that Weft ends the client's connection within the body, possibly without
// its last bytes, so that the client detects the truncation.
func clientTruncated(h *harness) {
	h.Helper()
	got, orderly := h.readToEnd("the client", h.ensureClient())
	if strings.HasSuffix(got, "0\r\n\r\n") {
		h.Fatalf("the truncated body looks complete (orderly: %t)\n%s", orderly, quote(got))
	}
	_ = h.client.Close()
	h.client = nil
}

// clientReset verifies that Weft resets the client's connection. A FIN would complete a body that
// ends with the connection.
func clientReset(h *harness) {
	h.Helper()
	if got, orderly := h.readToEnd("the client", h.ensureClient()); orderly {
		h.Fatalf("the client's connection ended with a FIN after\n%s", quote(got))
	}
	_ = h.client.Close()
	h.client = nil
}

// originClosed verifies that Weft closes the origin connection without sending more.
func originClosed(h *harness) {
	h.Helper()
	if got, _ := h.readToEnd("the origin", h.ensureOrigin()); got != "" {
		h.Fatalf("before the close the origin got\n%s", quote(got))
	}
	_ = h.origin.Close()
	h.origin = nil
}

// originClosedWithin verifies that Weft closes the origin connection after at most a prefix of the
// body, which may have been in transit when the response arrived.
func originClosedWithin(body string) step {
	return func(h *harness) {
		h.Helper()
		if got, _ := h.readToEnd("the origin", h.ensureOrigin()); !strings.HasPrefix(body, got) {
			h.Fatalf("before the close the origin got\n%s", quote(got))
		}
		_ = h.origin.Close()
		h.origin = nil
	}
}

// originMessageIncomplete verifies that Weft has not sent a complete request to the origin: it sent
// nothing, or closed the connection within the request.
func originMessageIncomplete(h *harness) {
	h.Helper()
	conn := h.origin
	if conn == nil {
		conn = h.unexpectedConn()
	}
	if conn == nil {
		return
	}
	got, _ := h.readToEnd("the origin", conn)
	if request, err := http.ReadRequest(bufio.NewReader(strings.NewReader(got))); err == nil {
		if _, err := io.Copy(io.Discard, request.Body); err == nil {
			h.Fatalf("the origin got a complete request\n%s", quote(got))
		}
	}
	_ = conn.Close()
	h.origin = nil
}

// clientCloses closes the client's connection, originCloses the origin's.
func clientCloses(h *harness) {
	_ = h.ensureClient().Close()
	h.client = nil
}

func originCloses(h *harness) {
	h.Helper()
	_ = h.ensureOrigin().Close()
	h.origin = nil
}

// clientHalfCloses half-closes the client's connection, originHalfCloses the origin's.
func clientHalfCloses(h *harness) {
	h.Helper()
	halfClose(h, h.ensureClient())
}

func originHalfCloses(h *harness) {
	h.Helper()
	halfClose(h, h.ensureOrigin())
}

func halfClose(h *harness, conn any) {
	h.Helper()
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		h.Fatal(err)
	}
}

// carriesNextExchange verifies that both connections can carry another exchange, with no bytes in
// between.
func carriesNextExchange(h *harness) {
	h.Helper()
	const request = "GET /next HTTP/1.1\r\nHost: next.test\r\n\r\n"
	const response = "HTTP/1.1 200 OK\r\nDate: d\r\nX-Next: yes\r\nContent-Length: 4\r\n\r\nnext"
	for _, do := range []step{clientSends(request), originReceives(request), originSends(response), clientReceives(response)} {
		do(h)
	}
}

// originUntouched verifies that Weft has sent nothing more to the origin.
func originUntouched(h *harness) {
	h.Helper()
	h.checkOriginUntouched()
}

// rejected verifies that Weft sends a local reply with status, closes the client's connection, and
// has sent nothing to the origin.
func rejected(status int) step {
	return func(h *harness) {
		h.Helper()
		rejectedOnly(status)(h)
		h.checkOriginUntouched()
	}
}

// rejectedOnly is like rejected, without the check of the origin.
func rejectedOnly(status int) step {
	return func(h *harness) {
		h.Helper()
		got, orderly := h.readToEnd("the client", h.ensureClient())
		head, body, found := strings.Cut(got, "\r\n\r\n")
		if !found || !orderly {
			h.Fatalf("the client got no complete response (orderly: %t), want status %d\n%s", orderly, status, quote(got))
		}
		reply := parseLocalReply(h, head, status)
		if !reply.closes {
			h.Errorf("the response has no Connection: close (RFC 9112 9.6)\n%s", quote(got))
		}
		if h.method != "HEAD" && len(body) != reply.length {
			h.Errorf("the response has a body of %d bytes and Content-Length %d\n%s", len(body), reply.length, quote(got))
		}
		_ = h.client.Close()
		h.client = nil
	}
}

// localReplyKeepAlive verifies that Weft sends a local reply with status and without Connection:
// close.
func localReplyKeepAlive(status int) step {
	return func(h *harness) {
		h.Helper()
		reply := parseLocalReply(h, h.readHead(), status)
		if reply.closes {
			h.Errorf("the response has Connection: close, want keepalive")
		}
		if h.method != "HEAD" {
			h.discard(reply.length)
		}
	}
}

// localReply holds the framing of a local reply.
type localReply struct {
	length int
	closes bool
}

// localReplyHeader matches the header fields of local replies: none of them comes from the request.
func localReplyHeader() *regexp.Regexp {
	return regexp.MustCompile(`^(Content-Type: text/plain; charset=utf-8|Content-Length: \d+|Connection: (close|keep-alive)|Allow: [A-Z, ]+|` +
		`Date: (Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z][a-z] \d{4} \d\d:\d\d:\d\d GMT)$`)
}

func parseLocalReply(h *harness, head string, status int) localReply {
	h.Helper()
	lines := strings.Split(head, "\r\n")
	if want := "HTTP/1.1 " + strconv.Itoa(status) + " "; !strings.HasPrefix(lines[0], want) {
		h.Fatalf("the client got\n%s\nwant %s", quote(head), want)
	}
	var reply localReply
	allowed := localReplyHeader()
	for _, line := range lines[1:] {
		if !allowed.MatchString(line) {
			h.Errorf("the local reply has the unexpected field %q", line)
		}
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "Content-Length":
			reply.length, _ = strconv.Atoi(value) // localReplyHeader verified the digits
		case "Connection":
			reply.closes = value == "close"
		}
	}
	return reply
}

// readHead returns the next head at the client, without its empty line.
func (h *harness) readHead() string {
	h.Helper()
	var head []byte
	b := make([]byte, 1)
	for !strings.HasSuffix(string(head), "\r\n\r\n") {
		if _, err := h.ensureClient().Read(b); err != nil {
			h.Fatalf("the client got\n%s\nthen %v", quote(string(head)), err)
		}
		head = append(head, b[0])
	}
	return string(head[:len(head)-4])
}

// discard reads n bytes at the client.
func (h *harness) discard(n int) {
	h.Helper()
	for buf := make([]byte, n); n > 0; {
		m, err := h.ensureClient().Read(buf[:n])
		if n -= m; err != nil {
			h.Fatalf("%d bytes of the body are missing: %v", n, err)
		}
	}
}

// expectChunked reads and verifies a head and a chunked body.
func (h *harness) expectChunked(side string, conn interface{ Read(p []byte) (int, error) }, head, body, trailer string) {
	h.Helper()
	var got []byte
	buf := make([]byte, 32<<10)
	for {
		text := string(got)
		size := min(len(text), len(head))
		if text[:size] != head[:size] {
			h.Fatalf("%s got\n%s\nwant\n%s", side, quote(text), quote(head))
		}
		if size == len(head) {
			if data, end, complete := dechunk(text[size:]); complete {
				if data != body || end != trailer {
					h.Fatalf("%s got\n%s\nwant the body\n%s\nand the trailer section\n%s", side, quote(text), quote(body), quote(trailer))
				}
				return
			}
		}
		// Read single bytes near the end of the body, so that no bytes after the body are consumed.
		b := buf[:1]
		if len(got) < len(head)+len(body) {
			b = buf[:min(len(buf), len(head)+len(body)-len(got))]
		}
		n, err := conn.Read(b)
		got = append(got, b[:n]...)
		if err != nil {
			h.Fatalf("%s got\n%s\nthen %v", side, quote(string(got)), err)
		}
	}
}

// dechunk decodes a chunked body strictly: no extensions, no leading zeros. complete reports
// whether text is a complete body without further bytes.
func dechunk(text string) (body, trailer string, complete bool) {
	var b strings.Builder
	for {
		line, rest, found := strings.Cut(text, "\r\n")
		size, err := strconv.ParseUint(line, 16, 31)
		if !found || err != nil || strconv.FormatUint(size, 16) != strings.ToLower(line) {
			return "", "", false
		}
		if size == 0 {
			section, after, found := strings.Cut("\r\n"+rest, "\r\n\r\n")
			if !found || after != "" {
				return "", "", false
			}
			if section != "" {
				section = section[2:] + "\r\n"
			}
			return b.String(), section, true
		}
		if uint64(len(rest)) < size+2 || rest[size:size+2] != "\r\n" {
			return "", "", false
		}
		b.WriteString(rest[:size])
		text = rest[size+2:]
	}
}

// readHeadRest returns the rest of a partly read head, including its empty line.
func (h *harness) readHeadRest() string {
	h.Helper()
	var rest []byte
	b := make([]byte, 1)
	for string(rest) != "\r\n" && !strings.HasSuffix(string(rest), "\r\n\r\n") {
		if _, err := h.ensureClient().Read(b); err != nil {
			h.Fatalf("the client got\n%s\nthen %v", quote(string(rest)), err)
		}
		rest = append(rest, b[0])
	}
	return string(rest)
}

// clientReceivesUpgrade verifies that the client reads a 101 with the given head, ignoring Date.
func clientReceivesUpgrade(head string) step {
	return func(h *harness) {
		h.Helper()
		got := regexp.MustCompile(`\r\nDate: [^\r]*`).ReplaceAllString(h.readHead()+"\r\n\r\n", "")
		if got != head {
			h.Fatalf("the client got\n%s\nwant\n%s", quote(got), quote(head))
		}
	}
}

// originHalfClosed verifies that Weft half-closes the origin connection.
func originHalfClosed(h *harness) {
	h.Helper()
	if got, orderly := h.readToEnd("the origin", h.ensureOrigin()); got != "" || !orderly {
		h.Fatalf("before the half-close (orderly: %t) the origin got\n%s", orderly, quote(got))
	}
}

// originReceivesNothing verifies that Weft does not forward the pending input of the client. It
// waits a short time, because Weft sends asynchronously.
func originReceivesNothing(h *harness) {
	h.Helper()
	conn := h.ensureOrigin()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	buf := make([]byte, 4<<10)
	if n, _ := conn.Read(buf); n > 0 {
		h.Fatalf("the origin got\n%s\nwant no bytes yet", quote(string(buf[:n])))
	}
	setDeadline(conn)
}
