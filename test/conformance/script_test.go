package conformance

import (
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
	return func(r *harness) {
		r.Helper()
		r.method, _, _ = strings.Cut(text, " ")
		r.write(r.ensureClient(), text)
	}
}

// originReceives verifies that the origin reads exactly text.
func originReceives(text string) step {
	return func(r *harness) {
		r.Helper()
		r.expect("the origin", r.ensureOrigin(), text)
	}
}

// originSends makes the origin send text.
func originSends(text string) step {
	return func(r *harness) {
		r.Helper()
		r.write(r.ensureOrigin(), text)
	}
}

// clientReceives verifies that the client reads exactly text.
func clientReceives(text string) step {
	return func(r *harness) {
		r.Helper()
		r.expect("the client", r.ensureClient(), text)
	}
}

// originReceivesChunked verifies that the origin reads a head and a chunked body with a trailer
// section, regardless of the chunk sizes.
func originReceivesChunked(head, body, trailer string) step {
	return func(r *harness) {
		r.Helper()
		r.expectChunked("the origin", r.ensureOrigin(), head, body, trailer)
	}
}

// clientReceivesChunked is originReceivesChunked for the client.
func clientReceivesChunked(head, body, trailer string) step {
	return func(r *harness) {
		r.Helper()
		r.expectChunked("the client", r.ensureClient(), head, body, trailer)
	}
}

// clientClosed verifies that Weft closes the client's connection with a FIN and sends nothing more.
func clientClosed(r *harness) {
	r.Helper()
	if got, orderly := r.readToEnd("the client", r.ensureClient()); got != "" || !orderly {
		r.Fatalf("before the close (orderly: %t) the client got\n%s", orderly, quote(got))
	}
	_ = r.client.Close()
	r.client = nil
}

// clientTruncated verifies that Weft ends the client's connection within the body, possibly without
// its last bytes, so that the client detects the truncation.
func clientTruncated(r *harness) {
	r.Helper()
	got, orderly := r.readToEnd("the client", r.ensureClient())
	if strings.HasSuffix(got, "0\r\n\r\n") {
		r.Fatalf("the truncated body looks complete (orderly: %t)\n%s", orderly, quote(got))
	}
	_ = r.client.Close()
	r.client = nil
}

// clientReset verifies that Weft resets the client's connection. A FIN would complete a body that
// ends with the connection.
func clientReset(r *harness) {
	r.Helper()
	if got, orderly := r.readToEnd("the client", r.ensureClient()); orderly {
		r.Fatalf("the client's connection ended with a FIN after\n%s", quote(got))
	}
	_ = r.client.Close()
	r.client = nil
}

// originClosed verifies that Weft closes the origin connection without sending more.
func originClosed(r *harness) {
	r.Helper()
	if got, _ := r.readToEnd("the origin", r.ensureOrigin()); got != "" {
		r.Fatalf("before the close the origin got\n%s", quote(got))
	}
	_ = r.origin.Close()
	r.origin = nil
}

// originClosedWithin verifies that Weft closes the origin connection after at most a prefix of the
// body, which may have been in transit when the response arrived.
func originClosedWithin(body string) step {
	return func(r *harness) {
		r.Helper()
		if got, _ := r.readToEnd("the origin", r.ensureOrigin()); !strings.HasPrefix(body, got) {
			r.Fatalf("before the close the origin got\n%s", quote(got))
		}
		_ = r.origin.Close()
		r.origin = nil
	}
}

// originMessageIncomplete verifies that Weft has not sent a complete chunked message to the origin:
// it sent nothing, or closed the connection within the message.
func originMessageIncomplete(r *harness) {
	r.Helper()
	conn := r.origin
	if conn == nil {
		conn = r.unexpectedConn()
	}
	if conn == nil {
		return
	}
	got, _ := r.readToEnd("the origin", conn)
	if _, body, found := strings.Cut(got, "\r\n\r\n"); found {
		if _, _, complete := dechunk(body); complete {
			r.Fatalf("the origin got a complete request\n%s", quote(got))
		}
	}
	_ = conn.Close()
	r.origin = nil
}

// clientCloses closes the client's connection, originCloses the origin's.
func clientCloses(r *harness) {
	_ = r.ensureClient().Close()
	r.client = nil
}

func originCloses(r *harness) {
	r.Helper()
	_ = r.ensureOrigin().Close()
	r.origin = nil
}

// clientHalfCloses half-closes the client's connection, originHalfCloses the origin's.
func clientHalfCloses(r *harness) {
	r.Helper()
	halfClose(r, r.ensureClient())
}

func originHalfCloses(r *harness) {
	r.Helper()
	halfClose(r, r.ensureOrigin())
}

func halfClose(r *harness, conn any) {
	r.Helper()
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		r.Fatal(err)
	}
}

// carriesNextExchange verifies that both connections can carry another exchange, with no bytes in
// between.
func carriesNextExchange(r *harness) {
	r.Helper()
	const request = "GET /next HTTP/1.1\r\nHost: next.test\r\n\r\n"
	const response = "HTTP/1.1 200 OK\r\nDate: d\r\nX-Next: yes\r\nContent-Length: 4\r\n\r\nnext"
	for _, do := range []step{clientSends(request), originReceives(request), originSends(response), clientReceives(response)} {
		do(r)
	}
}

// originUntouched verifies that Weft has sent nothing more to the origin.
func originUntouched(r *harness) {
	r.Helper()
	r.checkOriginUntouched()
}

// rejected verifies that Weft sends a local reply with status, closes the client's connection, and
// has sent nothing to the origin.
func rejected(status int) step {
	return func(r *harness) {
		r.Helper()
		rejectedOnly(status)(r)
		r.checkOriginUntouched()
	}
}

// rejectedOnly is like rejected, without the check of the origin.
func rejectedOnly(status int) step {
	return func(r *harness) {
		r.Helper()
		got, orderly := r.readToEnd("the client", r.ensureClient())
		head, body, found := strings.Cut(got, "\r\n\r\n")
		if !found || !orderly {
			r.Fatalf("the client got no complete response (orderly: %t), want status %d\n%s", orderly, status, quote(got))
		}
		reply := parseLocalReply(r, head, status)
		if !reply.closes {
			r.Errorf("the response has no Connection: close (RFC 9112 9.6)\n%s", quote(got))
		}
		if r.method != "HEAD" && len(body) != reply.length {
			r.Errorf("the response has a body of %d bytes and Content-Length %d\n%s", len(body), reply.length, quote(got))
		}
		_ = r.client.Close()
		r.client = nil
	}
}

// localReplyKeepAlive verifies that Weft sends a local reply with status and without Connection:
// close.
func localReplyKeepAlive(status int) step {
	return func(r *harness) {
		r.Helper()
		reply := parseLocalReply(r, r.readHead(), status)
		if reply.closes {
			r.Errorf("the response has Connection: close")
		}
		if r.method != "HEAD" {
			r.discard(reply.length)
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

func parseLocalReply(r *harness, head string, status int) localReply {
	r.Helper()
	lines := strings.Split(head, "\r\n")
	if want := "HTTP/1.1 " + strconv.Itoa(status) + " "; !strings.HasPrefix(lines[0], want) {
		r.Fatalf("the client got\n%s\nwant %s", quote(head), want)
	}
	var o localReply
	known := localReplyHeader()
	for _, line := range lines[1:] {
		if !known.MatchString(line) {
			r.Errorf("the local reply has the unexpected field %q", line)
		}
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "Content-Length":
			o.length, _ = strconv.Atoi(value) // localReplyHeader verified the digits
		case "Connection":
			o.closes = value == "close"
		}
	}
	return o
}

// readHead returns the next head at the client, without its empty line.
func (r *harness) readHead() string {
	r.Helper()
	var head []byte
	first := make([]byte, 1)
	for !strings.HasSuffix(string(head), "\r\n\r\n") {
		if _, err := r.ensureClient().Read(first); err != nil {
			r.Fatalf("the client got\n%s\nthen %v", quote(string(head)), err)
		}
		head = append(head, first[0])
	}
	return string(head[:len(head)-4])
}

// discard reads n bytes at the client.
func (r *harness) discard(n int) {
	r.Helper()
	for buf := make([]byte, n); n > 0; {
		m, err := r.ensureClient().Read(buf[:n])
		if n -= m; err != nil {
			r.Fatalf("%d bytes of the body are missing: %v", n, err)
		}
	}
}

// expectChunked reads and verifies a head and a chunked body.
func (r *harness) expectChunked(side string, conn interface{ Read(p []byte) (int, error) }, head, body, trailer string) {
	r.Helper()
	var got []byte
	buf := make([]byte, 32<<10)
	for {
		text := string(got)
		size := min(len(text), len(head))
		if text[:size] != head[:size] {
			r.Fatalf("%s got\n%s\nwant\n%s", side, quote(text), quote(head))
		}
		if size == len(head) {
			if data, end, complete := dechunk(text[size:]); complete {
				if data != body || end != trailer {
					r.Fatalf("%s got\n%s\nwant the body\n%s\nand the trailer section\n%s", side, quote(text), quote(body), quote(trailer))
				}
				return
			}
		}
		// Read single bytes near the end, so that nothing after it is consumed.
		first := buf[:1]
		if len(got) < len(head)+len(body) {
			first = buf[:min(len(buf), len(head)+len(body)-len(got))]
		}
		n, err := conn.Read(first)
		got = append(got, first[:n]...)
		if err != nil {
			r.Fatalf("%s got\n%s\nthen %v", side, quote(string(got)), err)
		}
	}
}

// dechunk decodes a chunked body strictly: no extensions, no leading zeros. whole reports that text
// is complete and has no further bytes.
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
func (r *harness) readHeadRest() string {
	r.Helper()
	var rest []byte
	first := make([]byte, 1)
	for string(rest) != "\r\n" && !strings.HasSuffix(string(rest), "\r\n\r\n") {
		if _, err := r.ensureClient().Read(first); err != nil {
			r.Fatalf("the client got\n%s\nthen %v", quote(string(rest)), err)
		}
		rest = append(rest, first[0])
	}
	return string(rest)
}

// clientReceivesUpgrade verifies that the client reads a 101 with the given head, ignoring Date.
func clientReceivesUpgrade(head string) step {
	return func(r *harness) {
		r.Helper()
		got := regexp.MustCompile(`\r\nDate: [^\r]*`).ReplaceAllString(r.readHead()+"\r\n\r\n", "")
		if got != head {
			r.Fatalf("the client got\n%s\nwant\n%s", quote(got), quote(head))
		}
	}
}

// originHalfClosed verifies that Weft half-closes the origin connection.
func originHalfClosed(r *harness) {
	r.Helper()
	if got, orderly := r.readToEnd("the origin", r.ensureOrigin()); got != "" || !orderly {
		r.Fatalf("before the half-close (orderly: %t) the origin got\n%s", orderly, quote(got))
	}
}

// originReceivesNothing verifies that Weft does not forward the pending input of the client. It
// waits a short time, because Weft sends asynchronously.
func originReceivesNothing(r *harness) {
	r.Helper()
	conn := r.ensureOrigin()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	buf := make([]byte, 4<<10)
	if n, _ := conn.Read(buf); n > 0 {
		r.Fatalf("the origin got\n%s\nwant no bytes yet", quote(string(buf[:n])))
	}
	setDeadline(conn)
}
