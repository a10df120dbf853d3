// Package origin is the upstream of a measurement: a server that does as little
// as a server can, on one thread, so that what is measured is the proxy before it.
// It speaks HTTP/1.1, HTTP/2 with prior knowledge (http2.go) and the RPC protocols
// of package frame; the first bytes of a connection tell which.
//
// Of HTTP it answers any request for /b/N with 200 and N bytes, once the whole
// request, body included, has come. An RPC is answered with its own string, at
// once or, as frame.Text says, when a number of them has come; all frames that one
// read brings are answered by one write.
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
	maxHead   = 64 << 10
	maxAnswer = 64 << 20
)

// server is one event loop and its connections.
type server struct {
	poller   *epoll.Poller
	listener int
	conns    []*conn // by descriptor
	answers  map[int][]byte
	scratch  [256 << 10]byte
	zeros    []byte // content of HTTP/2

	// Of RPC.
	protocols []*frame.Protocol
	batch     []byte // room for the answers of one read
	held      int    // requests whose answers wait, on all connections
	release   bool   // as many have come as were to be waited for
}

// conn is one connection. What is left over from a read or a write is kept here;
// when all goes in one piece, nothing is.
type conn struct {
	in    []byte // received, not yet taken
	out   []byte // to be written; may be an answer itself: not to be changed
	watch uint32 // what the poller watches the descriptor for
	known bool   // its first byte has come

	// Of HTTP.
	body   int    // bytes of a request's body that are still to come
	answer []byte // what that request will get

	// Of HTTP/2.
	http2 *http2 // nil: another protocol

	// Of RPC.
	speaks *frame.Protocol // nil: HTTP
	held   []held          // requests whose answers wait, in their order
}

// Serve listens at the address and answers until done, a descriptor, becomes
// readable or its writer has gone. It is for a process of its own: see package
// epoll.
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

// newServer returns a server without its descriptors.
func newServer() *server {
	return &server{answers: map[int][]byte{}, protocols: frame.All()}
}

// listen returns a listening socket that does not block.
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
		_ = unix.Close(fd) // the first error tells more
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

// errGone ends a connection; nobody reads it.
var errGone = errors.New("the client has gone")

func (s *server) handle(fd int, events uint32) error {
	c := s.conns[fd]
	if len(c.out) > 0 {
		if events&epoll.Writable == 0 {
			return errGone // neither wanted nor possible: an error or the end
		}
		return s.flush(fd, c)
	}
	// What is left over lies before what is read, so that it is in one piece.
	begin := copy(s.scratch[:], c.in)
	n, err := epoll.Read(fd, s.scratch[begin:])
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	if err != nil {
		return err
	}
	if n == 0 {
		return errGone
	}
	if err := s.receive(c, s.scratch[:begin+n]); err != nil {
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
	if c.speaks != nil {
		c.out = bytes.Clone(c.out) // what is left is in the room that the next batch takes
	}
	return nil
}

// receive takes what is whole of data, the first of which is what was left over,
// and keeps the rest.
func (s *server) receive(c *conn, data []byte) error {
	if !c.known {
		c.known = true
		i := slices.IndexFunc(s.protocols, func(p *frame.Protocol) bool { return p.Starts(data[0]) })
		if i >= 0 {
			c.speaks = s.protocols[i]
		}
		if bytes.HasPrefix(data, []byte("PRI ")) { // whole: it is sent by itself, or with more
			c.http2 = newHTTP2(s)
		}
	}
	take := s.take
	if c.http2 != nil {
		take = takeHTTP2
	}
	if c.speaks != nil {
		take = s.takeFrames
	}
	rest, err := take(c, data)
	if err != nil {
		return err
	}
	if len(rest) > maxHead {
		return errors.New("a request without end")
	}
	c.in = append(c.in[:0], rest...)
	return nil
}

// take takes every whole request of data, puts the answers into c.out and
// returns what is left over.
func (s *server) take(c *conn, data []byte) (rest []byte, err error) {
	for {
		if c.answer != nil {
			n := min(c.body, len(data))
			c.body -= n
			data = data[n:]
			if c.body > 0 {
				return nil, nil
			}
			c.queue(c.answer)
			c.answer = nil
		}
		if len(data) == 0 {
			return nil, nil
		}
		n, want, err := parse(data)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return data, nil
		}
		data = data[n:]
		c.body = want.body
		c.answer = s.answer(want.size)
	}
}

// queue appends an answer to what is to be written.
func (c *conn) queue(answer []byte) {
	if len(c.out) == 0 {
		c.out = answer
		return
	}
	// Pipelined: a fresh array, for c.out may be another answer itself.
	c.out = append(append(make([]byte, 0, len(c.out)+len(answer)), c.out...), answer...)
}

// flush writes; what the socket does not take is written when it can, and until
// then nothing is read.
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

// answer returns the answer with a body of size bytes.
func (s *server) answer(size int) []byte {
	if answer, made := s.answers[size]; made {
		return answer
	}
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", size)
	answer = append(answer, bytes.Repeat([]byte("x"), size)...)
	s.answers[size] = answer
	return answer
}

func (s *server) close(fd int) {
	if n := len(s.conns[fd].held); n > 0 {
		s.held, s.release = s.held-n, false
	}
	s.conns[fd] = nil
	_ = unix.Close(fd) // what was not sent has nobody to read it
}

func (s *server) closeAll() {
	for fd, c := range s.conns {
		if c != nil {
			s.close(fd)
		}
	}
}

// request is what the origin wants to know of one.
type request struct {
	size int // bytes of the answer's body
	body int // bytes of the request's body
}

// parse reads the request head that b begins with. n is its length, 0 if it is
// not all there.
func parse(b []byte) (n int, r request, err error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		if len(b) > maxHead {
			return 0, request{}, errors.New("a head without end")
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
	if r.size, err = number(digits, maxAnswer); err != nil {
		return 0, request{}, err
	}
	if string(method) == "GET" {
		return end + 4, r, nil // its body, if any, would be refused as the next head
	}
	for field := range bytes.Lines(fields) {
		name, value, _ := bytes.Cut(field, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			if r.body, err = number(bytes.TrimSpace(value), 1<<40); err != nil {
				return 0, request{}, err
			}
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			return 0, request{}, errors.New("a body in chunks")
		}
	}
	return end + 4, r, nil
}

func number(digits []byte, limit int) (int, error) {
	n, err := strconv.ParseUint(string(digits), 10, 62)
	if err != nil || n > uint64(limit) {
		return 0, fmt.Errorf("number %q, want 0 to %d", digits, limit)
	}
	return int(n), nil
}
