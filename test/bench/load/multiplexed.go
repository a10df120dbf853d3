package load

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-proxy/weft/test/bench/epoll"
)

// maxDepth is the maximum of Job.Depth.
const maxDepth = 1 << slotBits

// multiplexed generates load for protocols with many requests in flight per connection, in one
// event loop. It collects the output of a connection into one write, and one read returns all
// available input.
type multiplexed struct {
	*meter
	job        Job
	burstSize  uint64 // number of responses of a burst; 0: a loop
	maxPending int    // pending bytes on a connection above which no more requests are generated
	poller     *epoll.Poller
	conns      []*muxConn
	events     [256]epoll.Event
	scratch    [256 << 10]byte
	ready      bool          // requests may be sent on all connections
	lastRead   time.Duration // time of the last read

	// Fields of the open loop.
	openLoop  *arrivals // nil: a closed loop, or a burst
	freeSlots int       // free slots of all connections
	next      int       // index of the next connection to use
}

// protocolConn implements a protocol on one connection.
type protocolConn interface {
	// ready reports whether requests may be sent.
	ready() bool
	// out returns the pending output: protocolConn appends to it, the loop writes and clears it.
	out() *[]byte
	// send appends the request of a slot.
	send(slot int)
	// receive processes every complete frame of data, reports the slots with a response to the
	// muxConn, and returns the rest.
	receive(data []byte) (rest []byte, err error)
}

// muxConn is one connection. A slot identifies a request in flight.
type muxConn struct {
	protocolConn
	generator   *multiplexed
	fd          int
	startTimes  []time.Duration // by slot: when its request was sent, or arrived; 0: no request
	freeSlots   []int           // slots without a request
	input       []byte          // an incomplete frame
	sent        int             // bytes of out that were written
	awaitsWrite bool            // the poller watches for writability
}

// newMultiplexed returns a generator whose connections are open and idle. newConn returns the
// protocolConn of connection i.
func newMultiplexed(job Job, m *meter, newConn func(c *muxConn, i int) protocolConn) (*multiplexed, error) {
	poller, err := epoll.New()
	if err != nil {
		return nil, err
	}
	g := &multiplexed{meter: m, job: job, maxPending: math.MaxInt, poller: poller}
	if err := g.connect(newConn); err != nil {
		g.close()
		return nil, err
	}
	if job.Rate > 0 {
		g.openLoop = newArrivals(job.Rate, g.now())
	}
	return g, nil
}

// connect opens the connections and waits until all are ready.
func (g *multiplexed) connect(newConn func(c *muxConn, i int) protocolConn) error {
	for i := range g.job.Connections {
		fd, err := dial(g.poller, g.job.Address, i)
		if err == nil {
			err = g.flush(g.add(fd, newConn), i)
		}
		if err != nil {
			return fmt.Errorf("connection %d of %d: %w", i+1, g.job.Connections, err)
		}
	}
	deadline := g.now() + stallTimeout
	for _, c := range g.conns {
		for !c.ready() {
			if g.now() > deadline {
				return errors.New("no SETTINGS from the server")
			}
			if err := g.poll(stallTimeout); err != nil {
				return err
			}
		}
	}
	g.ready = true
	return nil
}

// add adds a connection with free slots.
func (g *multiplexed) add(fd int, newConn func(c *muxConn, i int) protocolConn) *muxConn {
	c := &muxConn{generator: g, fd: fd, startTimes: make([]time.Duration, g.job.Depth)}
	for slot := g.job.Depth - 1; slot >= 0; slot-- {
		c.freeSlots = append(c.freeSlots, slot)
	}
	c.protocolConn = newConn(c, len(g.conns))
	g.conns = append(g.conns, c)
	g.freeSlots += g.job.Depth
	return c
}

func (g *multiplexed) close() {
	for _, c := range g.conns {
		_ = unix.Close(c.fd) // all results have been read
	}
	_ = g.poller.Close()
}

// runUntil runs the loop until the deadline; a burst ends earlier, at its last response.
func (g *multiplexed) runUntil(deadline time.Duration) error {
	lastResponse, responses := g.now(), g.all
	for i := range g.conns {
		if err := g.fillSlots(i); err != nil {
			return err
		}
	}
	for {
		if err := g.dispatch(); err != nil {
			return err
		}
		now := g.now()
		if now >= deadline || g.burstSize > 0 && g.all == g.burstSize {
			return nil
		}
		if g.all > responses || g.burstSize > 0 || g.openLoop != nil && g.freeSlots == len(g.conns)*g.job.Depth {
			lastResponse, responses = now, g.all
		}
		if now-lastResponse > stallTimeout {
			return fmt.Errorf("no response for %v", stallTimeout)
		}
		wake := deadline
		if g.openLoop != nil && g.freeSlots > 0 {
			wake = min(wake, g.openLoop.nextArrival)
		}
		if err := g.poll(max(min(wake-now, stallTimeout), 0)); err != nil {
			return err
		}
	}
}

// poll handles the events of the next poll, which lasts at most the given time.
func (g *multiplexed) poll(maximum time.Duration) error {
	n, err := g.poller.Wait(g.events[:], maximum)
	if err != nil {
		return err
	}
	for _, e := range g.events[:n] {
		i := int(e.Token)
		if e.Events&^epoll.Writable != 0 { // errors and hangups are detected by reading
			if err := g.handleReadable(i); err != nil {
				return err
			}
		}
		if err := g.fillSlots(i); err != nil {
			return err
		}
		if err := g.dispatch(); err != nil {
			return err
		}
	}
	return nil
}

// fillSlots writes pending output of connection i. In a closed loop it first sends a request in
// every free slot.
func (g *multiplexed) fillSlots(i int) error {
	c := g.conns[i]
	out := c.out()
	for g.openLoop == nil && g.ready && len(c.freeSlots) > 0 && len(*out) < g.maxPending {
		start := g.now()
		for len(c.freeSlots) > 0 && len(*out) < g.maxPending {
			g.send(c, start)
		}
		if err := g.flush(c, i); err != nil {
			return err
		}
	}
	return g.flush(c, i)
}

// dispatch sends the arrived requests of an open loop while slots are free. It sends due requests
// in one write on one connection, and the next ones on the next connection.
func (g *multiplexed) dispatch() error {
	if g.openLoop == nil {
		return nil
	}
	g.openLoop.enqueueDue(g.now())
	for g.freeSlots > 0 && g.openLoop.pendingTimes.len() > 0 {
		i := g.next
		g.next = (g.next + 1) % len(g.conns)
		c := g.conns[i]
		for len(c.freeSlots) > 0 && g.openLoop.pendingTimes.len() > 0 {
			g.send(c, g.openLoop.pendingTimes.pop())
		}
		if err := g.flush(c, i); err != nil {
			return err
		}
	}
	return nil
}

// send sends a request in a free slot; its latency counts from start.
func (g *multiplexed) send(c *muxConn, start time.Duration) {
	slot := c.freeSlots[len(c.freeSlots)-1]
	c.freeSlots = c.freeSlots[:len(c.freeSlots)-1]
	g.freeSlots--
	c.startTimes[slot] = start
	c.send(slot)
}

// finish counts the request of a slot and, unless it belongs to a burst, frees the slot.
func (c *muxConn) finish(slot int) {
	g := c.generator
	g.count(g.lastRead - c.startTimes[slot])
	c.startTimes[slot] = 0
	if g.burstSize == 0 {
		c.freeSlots = append(c.freeSlots, slot)
		g.freeSlots++
	}
}

// flush writes the pending output; the poller reports when the socket accepts the rest.
func (g *multiplexed) flush(c *muxConn, i int) error {
	out := c.out()
	if len(*out) == 0 {
		return nil
	}
	n, err := epoll.Write(c.fd, (*out)[c.sent:])
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("send: %w", err)
	}
	if c.sent += n; c.sent == len(*out) {
		*out, c.sent = (*out)[:0], 0
	}
	pending := len(*out) > 0
	if pending == c.awaitsWrite {
		return nil
	}
	c.awaitsWrite = pending
	events := uint32(epoll.Readable)
	if pending {
		events |= epoll.Writable
	}
	return g.poller.Modify(c.fd, int32(i), events)
}

// handleReadable reads from connection i.
func (g *multiplexed) handleReadable(i int) error {
	c := g.conns[i]
	// The incomplete frame precedes the new data, so that the frame is contiguous.
	kept := copy(g.scratch[:], c.input)
	n, err := epoll.Read(c.fd, g.scratch[kept:])
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if n == 0 {
		return fmt.Errorf("read: connection %d ends with %d requests in flight: %w", i+1, len(c.startTimes)-len(c.freeSlots), io.ErrUnexpectedEOF)
	}
	if err := g.consume(c, g.scratch[:kept+n]); err != nil {
		return fmt.Errorf("connection %d: %w", i+1, err)
	}
	return nil
}

// consume passes data, which starts with the bytes kept from the last read, to the connection and
// keeps the unprocessed rest.
func (g *multiplexed) consume(c *muxConn, data []byte) error {
	g.lastRead = g.now()
	rest, err := c.receive(data)
	c.input = append(c.input[:0], rest...)
	return err
}
