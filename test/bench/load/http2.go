package load

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/net/http2/hpack"
	"golang.org/x/sys/unix"

	"github.com/weft-proxy/weft/test/bench/epoll"
	"github.com/weft-proxy/weft/test/bench/h2"
)

// The protocols of HTTP/2, as Job names them.
const (
	HTTP2      = "h2"          // GET, each answer Body bytes
	GRPC       = "grpc"        // unary calls with messages of Body bytes
	GRPCStream = "grpc-stream" // one stream on each connection, with Depth messages of Body bytes under way
)

// http2 generates requests of HTTP/2: one event loop and its connections, each
// with Depth requests at a time. What is sent on a connection leaves in one write,
// and one read takes all that has come.
type http2 struct {
	*meter
	job     Job
	request []hpack.HeaderField
	message []byte // of gRPC
	poller  *epoll.Poller
	conns   []http2Conn
	events  [256]epoll.Event
	scratch [256 << 10]byte
	ready   bool // the settings of all servers have come

	// Of the open loop.
	open *arrivals // nil: a closed loop
	free int       // requests that may be sent, on all connections
	next int       // the connection whose turn it is
}

// http2Conn is one connection, and what it is told.
type http2Conn struct {
	*h2.Conn
	load   *http2
	fd     int
	began  []time.Duration // by slot; when a request was sent, or arrived
	free   []int           // slots without a request
	stream *h2.Stream      // of GRPCStream
	in     []byte          // part of a frame
	sent   int             // bytes of Out that were written
	writes bool            // the poller watches for room to write
}

// newHTTP2 returns a generator whose connections are open and idle: the settings
// of the server have come.
func newHTTP2(job Job, m *meter) (*http2, error) {
	poller, err := epoll.New()
	if err != nil {
		return nil, err
	}
	g := &http2{meter: m, job: job, poller: poller, free: job.Connections * job.Depth, message: h2.Message(job.Body)}
	switch job.Protocol {
	case GRPC:
		g.request = h2.Request(h2.Unary)
	case GRPCStream:
		g.request = h2.Request(h2.Echo)
	default:
		g.request = h2.Request(fmt.Sprintf("/b/%d", job.Body))
	}
	g.conns = make([]http2Conn, job.Connections)
	for i := range g.conns {
		g.conns[i].fd = -1
	}
	for i := range g.conns {
		c := &g.conns[i]
		c.load = g
		if c.fd, err = dial(poller, job.Address, i); err == nil {
			c.Conn = h2.NewClient(c)
			c.began = make([]time.Duration, job.Depth)
			for slot := job.Depth - 1; slot >= 0; slot-- {
				c.free = append(c.free, slot)
			}
			err = g.flush(c, i)
		}
		if err != nil {
			g.close()
			return nil, fmt.Errorf("connection %d of %d: %w", i+1, job.Connections, err)
		}
	}
	if err := g.greet(); err != nil {
		g.close()
		return nil, err
	}
	g.ready = true
	if job.Rate > 0 {
		g.open = newArrivals(job.Rate, g.now())
	}
	return g, nil
}

// greet waits for the settings of all servers: their limits hold from then on.
func (g *http2) greet() error {
	deadline := g.now() + stall
	for i := range g.conns {
		for !g.conns[i].Ready {
			if g.now() > deadline {
				return errors.New("no settings")
			}
			if err := g.wait(stall); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *http2) close() {
	for i := range g.conns {
		if fd := g.conns[i].fd; fd >= 0 {
			_ = unix.Close(fd) // all that was wanted has come
		}
	}
	_ = g.poller.Close()
}

// until runs the loop up to the time.
func (g *http2) until(deadline time.Duration) error {
	heard, count := g.now(), g.all
	for i := range g.conns {
		if err := g.fill(i); err != nil {
			return err
		}
	}
	for {
		if err := g.dispatch(); err != nil {
			return err
		}
		now := g.now()
		if now >= deadline {
			return nil
		}
		if g.all > count || g.open != nil && g.free == len(g.conns)*g.job.Depth {
			heard, count = now, g.all
		}
		if now-heard > stall {
			return fmt.Errorf("no answer for %v", stall)
		}
		wake := deadline
		if g.open != nil && g.free > 0 {
			wake = min(wake, g.open.next)
		}
		if err := g.wait(max(min(wake-now, stall), 0)); err != nil {
			return err
		}
	}
}

// wait handles what happens within the time.
func (g *http2) wait(most time.Duration) error {
	n, err := g.poller.Wait(g.events[:], most)
	if err != nil {
		return err
	}
	for _, e := range g.events[:n] {
		if err := g.handle(int(e.Token), e.Events); err != nil {
			return err
		}
	}
	return nil
}

// handle reads and writes connection i as it can, and sends what that makes room
// for.
func (g *http2) handle(i int, events uint32) error {
	if events&^epoll.Writable != 0 { // errors and the end are read as well
		if err := g.readable(i); err != nil {
			return err
		}
	}
	if err := g.fill(i); err != nil {
		return err
	}
	return g.dispatch()
}

// fill sends a request in every free slot of connection i, in a closed loop.
func (g *http2) fill(i int) error {
	c := &g.conns[i]
	if g.open == nil && g.ready {
		for begin := g.now(); len(c.free) > 0; {
			g.send(c, begin)
		}
	}
	return g.flush(c, i)
}

// dispatch sends the requests that have arrived, in an open loop, as far as there
// are slots: those that are due together on one connection, the next ones on the
// next.
func (g *http2) dispatch() error {
	if g.open == nil {
		return nil
	}
	g.open.come(g.now())
	for g.free > 0 && g.open.waiting.len() > 0 {
		i := g.next
		g.next = (g.next + 1) % len(g.conns)
		c := &g.conns[i]
		for len(c.free) > 0 && g.open.waiting.len() > 0 {
			g.send(c, g.open.waiting.pop())
		}
		if err := g.flush(c, i); err != nil {
			return err
		}
	}
	return nil
}

// send sends a request, or the next message of a stream, in a free slot of a
// connection. Its latency counts from begin.
func (g *http2) send(c *http2Conn, begin time.Duration) {
	slot := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	g.free--
	switch g.job.Protocol {
	case HTTP2:
		c.Open(c.Encode(g.request...), true).Slot = slot
	case GRPC:
		s := c.Open(c.Encode(g.request...), false)
		s.Slot = slot
		c.Send(s, g.message, true, nil)
	default:
		if c.stream == nil {
			c.stream = c.Open(c.Encode(g.request...), false)
		}
		// Messages come back in their order, and slots are used in turn.
		c.Send(c.stream, g.message, false, nil)
	}
	c.began[slot] = begin
}

// flush writes; what the socket does not take is written when it can.
func (g *http2) flush(c *http2Conn, i int) error {
	if len(c.Out) == 0 && !c.writes {
		return nil
	}
	n, err := epoll.Write(c.fd, c.Out[c.sent:])
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("send: %w", err)
	}
	if c.sent += n; c.sent == len(c.Out) {
		c.Out, c.sent = c.Out[:0], 0
	}
	writes := len(c.Out) > 0
	if writes == c.writes {
		return nil
	}
	c.writes = writes
	events := uint32(epoll.Readable)
	if writes {
		events |= epoll.Writable
	}
	return g.poller.Modify(c.fd, int32(i), events)
}

// readable reads from connection i.
func (g *http2) readable(i int) error {
	c := &g.conns[i]
	// What is left over lies before what is read, so that it is in one piece.
	begin := copy(g.scratch[:], c.in)
	n, err := epoll.Read(c.fd, g.scratch[begin:])
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if n == 0 {
		return fmt.Errorf("read: connection %d ends with %d requests under way: %w", i+1, len(c.began)-len(c.free), io.ErrUnexpectedEOF)
	}
	rest, err := c.Receive(g.scratch[:begin+n])
	if err != nil {
		return fmt.Errorf("connection %d: %w", i+1, err)
	}
	c.in = append(c.in[:0], rest...)
	return nil
}

// Fields implements h2.Handler.
func (c *http2Conn) Fields(s *h2.Stream, f h2.Fields, end bool) error {
	grpc := c.load.job.Protocol != HTTP2
	if err := h2.Check(s, f, grpc, end); err != nil {
		return err
	}
	if !end {
		return nil
	}
	if want := len(c.load.message); c.stream != nil || !grpc || s.Received != want {
		return fmt.Errorf("an answer that ends after %d bytes", s.Received)
	}
	c.answered(s.Slot)
	return nil
}

// Data implements h2.Handler.
func (c *http2Conn) Data(s *h2.Stream, _ []byte, end bool) error {
	if c.stream == nil {
		if !end {
			return nil
		}
		if c.load.job.Protocol != HTTP2 || s.Received != c.load.job.Body {
			return fmt.Errorf("an answer that ends after %d bytes", s.Received)
		}
		c.answered(s.Slot)
		return nil
	}
	for size := len(c.load.message); s.Received >= size; {
		s.Received -= size
		c.answered(c.oldest())
	}
	return nil
}

// oldest is the slot of the message that was sent first.
func (c *http2Conn) oldest() int {
	at := -1
	for slot, began := range c.began {
		if began > 0 && (at < 0 || began < c.began[at]) {
			at = slot
		}
	}
	return at
}

// answered counts the request of a slot, which is free now.
func (c *http2Conn) answered(slot int) {
	c.load.count(c.load.now() - c.began[slot])
	c.began[slot] = 0
	c.free = append(c.free, slot)
	c.load.free++
}
