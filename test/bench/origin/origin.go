// Package origin is the upstream of the benchmark: a minimal server on one thread, so that the
// proxy dominates the measurement. It implements HTTP/1.1, HTTP/2 with prior knowledge (http2.go)
// and the RPC protocols of package frame, and detects the protocol by the first bytes of a
// connection.
//
// It responds to an HTTP request for /b/N with 200 and N bytes, after the complete request
// including its body has arrived. It responds to an RPC with the string of the request:
// immediately, or after frame.Text.Hold requests have arrived. It writes the responses to all
// frames of one read together.
package origin

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/weft-proxy/weft/test/bench/epoll"
	"github.com/weft-proxy/weft/test/bench/frame"
)

const (
	maxHead     = 64 << 10
	maxResponse = 64 << 20
)

// server is one event loop and its connections.
type server struct {
	poller    *epoll.Poller
	listener  int
	conns     []*conn // by descriptor
	responses map[int][]byte
	scratch   [256 << 10]byte
	zeros     []byte // body of HTTP/2 responses

	// Fields of RPC.
	protocols []*frame.Protocol
	batch     []byte // buffer for the responses to one read
	heldCount int    // number of held requests of all connections
	release   bool   // enough requests have arrived: respond to the held ones
}

// conn is one connection. Its buffers are empty unless a read or a write was incomplete.
type conn struct {
	in       []byte // received, not yet processed
	out      []byte // pending output; may alias a shared response: read-only
	watch    uint32 // events that the poller watches for
	detected bool   // the first byte has arrived

	// Fields of HTTP/1.1.
	body     int    // remaining bytes of the current request's body
	response []byte // response to the current request

	// Fields of HTTP/2.
	http2 *http2 // nil: another protocol

	// Fields of RPC.
	protocol     *frame.Protocol // nil: HTTP
	heldRequests []heldRequest   // held requests, in order
}

// Serve listens on the address and serves until the descriptor done becomes readable or its writer
// closes it. It needs a process of its own: see package epoll.
func Serve(address netip.AddrPort, done int) error {
	listener, err := listen(address)
	if err != nil {
		return fmt.Errorf("listen at %v: %w", address, err)
	}
	defer unix.Close(listener) //nolint:errcheck // nothing is written to it
	poller, err := epoll.New()
	if err != nil {
		return err
	}
	defer poller.Close() //nolint:errcheck // nothing is written to it
	s := newServer()
	s.poller, s.listener = poller, listener
	for _, fd := range []int{listener, done} {
		if err := poller.Add(fd, int32(fd), epoll.Readable); err != nil {
			return err
		}
	}
	defer s.closeAll()
	var events [256]epoll.Event
	for {
		n, err := poller.Wait(events[:], -1)
		if err != nil {
			return err
		}
		for _, e := range events[:n] {
			switch fd := int(e.Token); fd {
			case done:
				return nil
			case listener:
				if err := s.accept(); err != nil {
					return err
				}
			default:
				if err := s.handle(fd, e.Events); err != nil {
					s.close(fd)
				}
			}
		}
	}
}

// newServer returns a server without poller and listener.
func newServer() *server {
	return &server{responses: map[int][]byte{}, protocols: frame.All()}
}

// listen returns a nonblocking listening socket.
func listen(address netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()}),
		unix.Listen(fd, 4096),
	)
	if err != nil {
		_ = unix.Close(fd) // the first error matters more
		return 0, err
	}
	return fd, nil
}

func (s *server) accept() error {
	for {
		fd, _, err := unix.Accept4(s.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.ECONNABORTED), errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("accept: %w", err)
		}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return fmt.Errorf("set TCP_NODELAY: %w", err)
		}
		if fd >= len(s.conns) {
			s.conns = append(s.conns, make([]*conn, fd+1-len(s.conns))...)
		}
		s.conns[fd] = &conn{watch: epoll.Readable}
		if err := s.poller.Add(fd, int32(fd), epoll.Readable); err != nil {
			return err
		}
	}
}

var errClientClosed = errors.New("the client has disconnected")

func (s *server) handle(fd int, events uint32) error {
	c := s.conns[fd]
	if len(c.out) > 0 {
		if events&epoll.Writable == 0 {
			return errClientClosed // the event is an error or a hangup
		}
		return s.flush(fd, c)
	}
	// The incomplete request precedes the new data, so that the request is contiguous.
	kept := copy(s.scratch[:], c.in)
	n, err := epoll.Read(fd, s.scratch[kept:])
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	if err != nil {
		return err
	}
	if n == 0 {
		return errClientClosed
	}
	if err := s.receive(c, s.scratch[:kept+n]); err != nil {
		return err
	}
	if s.release {
		s.releaseAll()
	}
	if c.http2 != nil {
		return s.flushHTTP2(fd, c)
	}
	if len(c.out) == 0 {
		return nil
	}
	if err := s.flush(fd, c); err != nil {
		return err
	}
	if c.protocol != nil {
		c.out = bytes.Clone(c.out) // the rest is in s.batch, which the next read reuses
	}
	return nil
}

// receive processes the complete requests of data, which starts with the bytes kept from the last
// read, and keeps the rest.
func (s *server) receive(c *conn, data []byte) error {
	if !c.detected {
		c.detected = true
		i := slices.IndexFunc(s.protocols, func(p *frame.Protocol) bool { return p.StartsWith(data[0]) })
		if i >= 0 {
			c.protocol = s.protocols[i]
		}
		if bytes.HasPrefix(data, []byte("PRI ")) { // the first bytes of the preface, which arrive in the first read
			c.http2 = newHTTP2(s)
		}
	}
	handleInput := s.handleRequests
	if c.http2 != nil {
		handleInput = handleHTTP2
	}
	if c.protocol != nil {
		handleInput = s.handleFrames
	}
	rest, err := handleInput(c, data)
	if err != nil {
		return err
	}
	if len(rest) > maxHead {
		return errors.New("request too large")
	}
	c.in = append(c.in[:0], rest...)
	return nil
}

// handleRequests processes every complete request of data, stores the responses in c.out and
// returns the rest.
func (s *server) handleRequests(c *conn, data []byte) (rest []byte, err error) {
	for {
		if c.response != nil {
			n := min(c.body, len(data))
			c.body -= n
			data = data[n:]
			if c.body > 0 {
				return nil, nil
			}
			c.queue(c.response)
			c.response = nil
		}
		if len(data) == 0 {
			return nil, nil
		}
		n, r, err := parse(data)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return data, nil
		}
		data = data[n:]
		c.body = r.body
		c.response = s.response(r.size)
	}
}

// queue appends a response to the pending output.
func (c *conn) queue(response []byte) {
	if len(c.out) == 0 {
		c.out = response
		return
	}
	// A pipelined response needs a new array, because c.out may alias a shared response.
	c.out = append(append(make([]byte, 0, len(c.out)+len(response)), c.out...), response...)
}

// flush writes the pending output. While output is pending, the poller watches only for
// writability, so nothing is read.
func (s *server) flush(fd int, c *conn) error {
	n, err := epoll.Write(fd, c.out)
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		return err
	}
	c.out = c.out[n:]
	watch := uint32(epoll.Writable)
	if len(c.out) == 0 {
		c.out, watch = nil, epoll.Readable
	}
	if watch == c.watch {
		return nil
	}
	c.watch = watch
	return s.poller.Modify(fd, int32(fd), watch)
}

// response returns the response with a body of size bytes.
func (s *server) response(size int) []byte {
	if text, ok := s.responses[size]; ok {
		return text
	}
	text := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", size)
	text = append(text, bytes.Repeat([]byte("x"), size)...)
	s.responses[size] = text
	return text
}

func (s *server) close(fd int) {
	if n := len(s.conns[fd].heldRequests); n > 0 {
		s.heldCount, s.release = s.heldCount-n, false
	}
	s.conns[fd] = nil
	_ = unix.Close(fd) // pending output is lost
}

func (s *server) closeAll() {
	for fd, c := range s.conns {
		if c != nil {
			s.close(fd)
		}
	}
}

// request holds the relevant fields of a request head.
type request struct {
	size int // bytes of the response body
	body int // bytes of the request body
}

// parse reads the request head at the start of b. n is its length, or 0 if the head is incomplete.
func parse(b []byte) (n int, r request, err error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		if len(b) > maxHead {
			return 0, request{}, errors.New("head too large")
		}
		return 0, request{}, nil
	}
	head := b[:end+2]
	line, fields, _ := bytes.Cut(head, []byte("\r\n"))
	method, target, _ := bytes.Cut(line, []byte(" "))
	target, _, _ = bytes.Cut(target, []byte(" "))
	digits, found := bytes.CutPrefix(target, []byte("/b/"))
	if !found {
		return 0, request{}, fmt.Errorf("target %q, want /b/N", target)
	}
	if r.size, err = parseNumber(digits, maxResponse); err != nil {
		return 0, request{}, err
	}
	if string(method) == "GET" {
		return end + 4, r, nil // the next parse rejects a body, if there is one
	}
	for field := range bytes.Lines(fields) {
		name, value, _ := bytes.Cut(field, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			if r.body, err = parseNumber(bytes.TrimSpace(value), 1<<40); err != nil {
				return 0, request{}, err
			}
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			return 0, request{}, errors.New("chunked body")
		}
	}
	return end + 4, r, nil
}

func parseNumber(digits []byte, limit int) (int, error) {
	n, err := strconv.ParseUint(string(digits), 10, 62)
	if err != nil || n > uint64(limit) {
		return 0, fmt.Errorf("number %q, want 0 to %d", digits, limit)
	}
	return int(n), nil
}
