package load

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-proxy/weft/test/bench/epoll"
)

// maxHead is the maximum size of an incomplete response head, in bytes.
const maxHead = 8 << 10

// http1 generates HTTP/1.1 load: one event loop with connections that each have at most one request
// in flight.
type http1 struct {
	*meter
	job      Job
	poller   *epoll.Poller
	conns    []conn
	events   [256]epoll.Event
	scratch  [256 << 10]byte
	idle     queue[int] // connections without a request, longest idle first
	openLoop *arrivals  // nil: a closed loop
}

// conn is one connection. start is 0 if it has no request in flight.
type conn struct {
	fd            int
	start         time.Duration // when the request in flight was sent, or in an open loop when it arrived
	remainingBody int           // remaining bytes of the response body; -1: the head is incomplete
	closes        bool          // the response announces the close of the connection
	head          []byte        // part of a response head, usually empty
}

// newHTTP1 returns a generator whose connections are open and idle.
func newHTTP1(job Job, m *meter) (*http1, error) {
	poller, err := epoll.New()
	if err != nil {
		return nil, err
	}
	g := &http1{meter: m, job: job, poller: poller, conns: make([]conn, job.Connections)}
	for i := range g.conns {
		g.conns[i] = conn{fd: -1, head: make([]byte, 0, maxHead)}
	}
	for i := range g.conns {
		if err := g.connect(i); err != nil {
			g.close()
			return nil, fmt.Errorf("connection %d of %d: %w", i+1, job.Connections, err)
		}
		g.idle.push(i)
	}
	if job.Rate > 0 {
		g.openLoop = newArrivals(job.Rate, g.now())
	}
	return g, nil
}

func (g *http1) close() {
	for i := range g.conns {
		if g.conns[i].fd >= 0 {
			_ = unix.Close(g.conns[i].fd) // all results have been read
		}
	}
	_ = g.poller.Close()
}

// connect opens connection i and replaces the closed one, if any.
func (g *http1) connect(i int) error {
	c := &g.conns[i]
	if c.fd >= 0 {
		_ = unix.Close(c.fd) // the server has closed the connection, or will close it
		c.fd = -1
	}
	fd, err := dial(g.poller, g.job.Address, i)
	if err != nil {
		return err
	}
	*c = conn{fd: fd, remainingBody: -1, head: c.head[:0]}
	return nil
}

// runUntil runs the loop until the deadline.
func (g *http1) runUntil(deadline time.Duration) error {
	lastResponse := g.now()
	for {
		if err := g.dispatch(); err != nil {
			return err
		}
		now := g.now()
		if now >= deadline {
			return nil
		}
		if now-lastResponse > stallTimeout {
			return fmt.Errorf("no response for %v", stallTimeout)
		}
		wake := deadline
		if g.openLoop != nil && g.idle.len() > 0 {
			wake = min(wake, g.openLoop.nextArrival)
		}
		n, err := g.poller.Wait(g.events[:], max(min(wake-now, stallTimeout), 0))
		if err != nil {
			return err
		}
		for _, e := range g.events[:n] {
			if err := g.handleReadable(int(e.Token)); err != nil {
				return err
			}
			// Dispatch after each event: sending in bursts would change the measurement.
			if err := g.dispatch(); err != nil {
				return err
			}
		}
		if n > 0 {
			lastResponse = now
		}
	}
}

// dispatch sends the due requests: in a closed loop one on every idle connection, in an open loop
// one for each arrival while a connection is idle.
func (g *http1) dispatch() error {
	if g.openLoop == nil {
		for g.idle.len() > 0 {
			if err := g.send(g.idle.pop(), g.now()); err != nil {
				return err
			}
		}
		return nil
	}
	g.openLoop.enqueueDue(g.now())
	for g.idle.len() > 0 && g.openLoop.pendingTimes.len() > 0 {
		if err := g.send(g.idle.pop(), g.openLoop.pendingTimes.pop()); err != nil {
			return err
		}
	}
	return nil
}

// send sends a request on connection i; its latency counts from start.
func (g *http1) send(i int, start time.Duration) error {
	c := &g.conns[i]
	c.start = start
	n, err := epoll.Write(c.fd, g.job.Request)
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if n < len(g.job.Request) {
		return fmt.Errorf("the socket accepted %d bytes of a request of %d", n, len(g.job.Request))
	}
	return nil
}

// handleReadable reads from connection i.
func (g *http1) handleReadable(i int) error {
	c := &g.conns[i]
	n, err := epoll.Read(c.fd, g.scratch[:])
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	if c.start == 0 && (err != nil || n == 0) {
		// The server may close an idle connection. Its index stays in the idle queue.
		g.reconnects++
		return g.connect(i)
	}
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if n == 0 {
		return fmt.Errorf("read: the response ends early: %w", io.ErrUnexpectedEOF)
	}
	if c.start == 0 {
		return fmt.Errorf("received %d bytes although no request is in flight: %.80q", n, g.scratch[:n])
	}
	return g.receive(i, g.scratch[:n])
}

// receive processes bytes of the current response on connection i.
func (g *http1) receive(i int, data []byte) error {
	c := &g.conns[i]
	if c.remainingBody < 0 {
		if len(c.head) > 0 {
			c.head = append(c.head, data...)
			data = c.head
		}
		n, head, err := parse(data)
		if err != nil {
			return err
		}
		if n == 0 {
			if len(data) > maxHead {
				return fmt.Errorf("a response head of more than %d bytes", maxHead)
			}
			if len(c.head) == 0 {
				c.head = append(c.head, data...)
			}
			return nil
		}
		if head.length != g.job.Body {
			return fmt.Errorf("a response of %d bytes, want %d", head.length, g.job.Body)
		}
		c.remainingBody, c.closes = head.length, head.closes
		data = data[n:]
	}
	if len(data) > c.remainingBody {
		return fmt.Errorf("%d bytes after the response: %.80q", len(data)-c.remainingBody, data[c.remainingBody:])
	}
	c.remainingBody -= len(data)
	if c.remainingBody > 0 {
		c.head = c.head[:0]
		return nil
	}
	return g.finish(i)
}

// finish counts the response of connection i and makes the connection idle.
func (g *http1) finish(i int) error {
	c := &g.conns[i]
	g.count(g.now() - c.start)
	c.start, c.remainingBody, c.head = 0, -1, c.head[:0]
	if c.closes {
		g.reconnects++
		if err := g.connect(i); err != nil {
			return err
		}
	}
	g.idle.push(i)
	return nil
}
