package client

import (
	"bytes"
	"errors"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/test/envoy/wire"
)

// reader buffers what arrives on a connection.
type reader struct {
	conn net.Conn
	buf  []byte // not consumed
	end  bool   // the peer closed or reset the connection
	err  error  // why it ended
}

// more waits for bytes until the deadline, and reports whether some arrived.
func (r *reader) more(deadline time.Time) bool {
	if r.end {
		return false
	}
	if err := r.conn.SetReadDeadline(deadline); err != nil {
		r.end = true
		return false
	}
	piece := make([]byte, 64<<10)
	n, err := r.conn.Read(piece)
	r.buf = append(r.buf, piece[:n]...)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		r.end, r.err = true, err
	}
	return n > 0
}

// until returns the bytes up to and including a separator.
func (r *reader) until(separator string, deadline time.Time) (piece []byte, ok bool) {
	for {
		if i := bytes.Index(r.buf, []byte(separator)); i >= 0 {
			return r.take(i + len(separator)), true
		}
		if !r.more(deadline) {
			return nil, false
		}
	}
}

// exactly returns n bytes, or fewer if no more arrive.
func (r *reader) exactly(n int, deadline time.Time) []byte {
	for len(r.buf) < n && r.more(deadline) {
	}
	return r.take(min(n, len(r.buf)))
}

func (r *reader) take(n int) []byte {
	piece := r.buf[:n:n]
	r.buf = r.buf[n:]
	return piece
}

func runHTTP1(conn net.Conn, s *Script, id string, begin, deadline time.Time) Outcome {
	r := &reader{conn: conn}
	out := Outcome{}
	if len(s.Preface) > 0 {
		_, _ = conn.Write(s.Preface) // the response shows a failure
	}
	for range s.repeat() {
		for _, p := range s.parts(id) {
			time.Sleep(p.Pause)
			if _, err := conn.Write(p.Data); err != nil {
				break
			}
		}
		for range s.responses() {
			response := r.response(s.Method, deadline)
			for !response.Missing && response.Status < 200 && response.Status != 101 {
				out.Responses = append(out.Responses, response)
				response = r.response(s.Method, deadline)
			}
			out.Responses = append(out.Responses, response)
			if s.Tunnel != nil && beginsTunnel(s.Method, response) {
				received := r.tunnel(s.Tunnel)
				out.Tunnel = &received
			}
		}
	}
	out.Elapsed = time.Since(begin)
	r.more(time.Now().Add(s.closeWait(out.Responses)))
	out.Closed, out.Error = r.end, alertText(r.err)
	out.Extra = string(r.buf[:min(len(r.buf), 200)])
	return out
}

func beginsTunnel(method string, r Response) bool {
	return r.Status == 101 || method == "CONNECT" && r.Status == 200
}

// tunnel sends data and returns what arrives: the echo of the data, unless the wait times out.
func (r *reader) tunnel(data []byte) string {
	_, _ = r.conn.Write(data) // the result shows a failure
	deadline := time.Now().Add(350 * time.Millisecond)
	for len(r.buf) < len("echo:")+len(data) && r.more(deadline) {
	}
	return string(r.take(len(r.buf)))
}

var statusLine = regexp.MustCompile(`^HTTP/(\d\.\d) (\d+)( |$)`)

// response reads a response to a request with a method.
func (r *reader) response(method string, deadline time.Time) Response {
	head, ok := r.until("\r\n\r\n", deadline)
	if !ok {
		return Response{Missing: true, Partial: string(r.buf[:min(len(r.buf), 200)]), TimedOut: !r.end}
	}
	line, fields := wire.ParseHead(head)
	match := statusLine.FindStringSubmatch(line)
	if match == nil {
		return Response{Missing: true, Partial: line}
	}
	status, err := strconv.Atoi(match[2])
	if err != nil {
		return Response{Missing: true, Partial: line}
	}
	response := Response{Version: match[1], Status: status, Fields: fields}
	if status >= 200 && method != "HEAD" && status != 204 && status != 304 && !beginsTunnel(method, response) {
		r.body(&response, deadline)
	}
	return response
}

// body reads the body of a response.
func (r *reader) body(response *Response, deadline time.Time) {
	if coding, _ := wire.Get(response.Fields, "transfer-encoding"); strings.Contains(coding, "chunked") {
		response.Cut = !r.chunks(response, deadline)
		return
	}
	if text, found := wire.Get(response.Fields, "content-length"); found {
		length, err := strconv.Atoi(text)
		response.Body = r.exactly(max(length, 0), deadline)
		response.Cut = err != nil || len(response.Body) < length
		return
	}
	for r.more(deadline) {
	}
	response.Body = r.take(len(r.buf))
}

// chunks reads a chunked body with its trailers, and reports whether it is complete.
func (r *reader) chunks(response *Response, deadline time.Time) (complete bool) {
	for {
		line, ok := r.until("\r\n", deadline)
		if !ok {
			return false
		}
		digits, _, _ := strings.Cut(string(line), ";")
		size, err := strconv.ParseUint(strings.TrimSpace(digits), 16, 31)
		if err != nil {
			return false
		}
		if size == 0 {
			break
		}
		data := r.exactly(int(size), deadline)
		response.Body = append(response.Body, data...)
		if len(data) < int(size) {
			return false
		}
		r.exactly(len("\r\n"), deadline)
	}
	for {
		line, ok := r.until("\r\n", deadline)
		if !ok || len(line) == len("\r\n") {
			return ok
		}
		response.Trailers = append(response.Trailers, wire.ParseField(strings.TrimSuffix(string(line), "\r\n")))
	}
}
