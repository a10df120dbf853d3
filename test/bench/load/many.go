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

// many generates load for protocols with many requests in flight per connection, in one event loop.
// It collects the output of a connection into one write, and one read returns all available input.
type many struct {
	*meter
	job     Job
	burst   uint64 // number of responses of a burst; 0: a loop
	most    int    // pending bytes on a connection above which no more requests are generated
	poller  *epoll.Poller
	links   []*link
	events  [256]epoll.Event
	scratch [256 << 10]byte
	ready   bool          // requests may be sent on all connections
	read    time.Duration // time of the last read

	// Fields of the open loop.
	open *arrivals // nil: a closed loop, or a burst
	free int       // free slots of all connections
	next int       // index of the next connection to use
}

// dialect implements a protocol on one connection.
type dialect interface {
	// ready reports whether requests may be sent.
	ready() bool
	// out returns the pending output: the dialect appends to it, the loop writes and clears it.
	out() *[]byte
	// send appends the request of a slot.
	send(slot int)
	// receive processes every complete frame of data, reports the slots with a response to the
	// link, and returns the rest.
	receive(data []byte) (rest []byte, err error)
}

// link is one connection. A slot identifies a request in flight.
type link struct {
	dialect
	load   *many
	fd     int
	began  []time.Duration // by slot: when its request was sent, or arrived; 0: no request
	free   []int           // slots without a request
	in     []byte          // an incomplete frame
	sent   int             // bytes of out that were written
	writes bool            // the poller watches for writability
}

// newMany returns a generator whose connections are open and idle. speak returns the dialect of
// connection i.
func newMany(job Job, m *meter, speak func(l *link, i int) dialect) (*many, error) {
	poller, err := epoll.New()
	if err != nil {
		return nil, err
	}
	g := &many{meter: m, job: job, most: math.MaxInt, poller: poller}
	if err := g.connect(speak); err != nil {
		g.close()
		return nil, err
	}
	if job.Rate > 0 {
		g.open = newArrivals(job.Rate, g.now())
	}
	return g, nil
}

// connect opens the connections and waits until all are ready.
func (g *many) connect(speak func(l *link, i int) dialect) error {
	for i := range g.job.Connections {
		fd, err := dial(g.poller, g.job.Address, i)
		if err == nil {
			err = g.flush(g.add(fd, speak), i)
		}
		if err != nil {
			return fmt.Errorf("connection %d of %d: %w", i+1, g.job.Connections, err)
		}
	}
	deadline := g.now() + stall
	for _, l := range g.links {
		for !l.ready() {
			if g.now() > deadline {
				return errors.New("no greeting of the server")
			}
			if err := g.wait(stall); err != nil {
				return err
			}
		}
	}
	g.ready = true
	return nil
}

// add adds a connection with free slots.
func (g *many) add(fd int, speak func(l *link, i int) dialect) *link {
	l := &link{load: g, fd: fd, began: make([]time.Duration, g.job.Depth)}
	for slot := g.job.Depth - 1; slot >= 0; slot-- {
		l.free = append(l.free, slot)
	}
	l.dialect = speak(l, len(g.links))
	g.links = append(g.links, l)
	g.free += g.job.Depth
	return l
}

func (g *many) close() {
	for _, l := range g.links {
		_ = unix.Close(l.fd) // all results have been read
	}
	_ = g.poller.Close()
}

// until runs the loop until the deadline; a burst ends earlier, at its last response.
func (g *many) until(deadline time.Duration) error {
	heard, count := g.now(), g.all
	for i := range g.links {
		if err := g.fill(i); err != nil {
			return err
		}
	}
	for {
		if err := g.dispatch(); err != nil {
			return err
		}
		now := g.now()
		if now >= deadline || g.burst > 0 && g.all == g.burst {
			return nil
		}
		if g.all > count || g.burst > 0 || g.open != nil && g.free == len(g.links)*g.job.Depth {
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

// wait handles the events of the next poll, which lasts at most the given time.
func (g *many) wait(most time.Duration) error {
	n, err := g.poller.Wait(g.events[:], most)
	if err != nil {
		return err
	}
	for _, e := range g.events[:n] {
		i := int(e.Token)
		if e.Events&^epoll.Writable != 0 { // errors and hangups are detected by reading
			if err := g.readable(i); err != nil {
				return err
			}
		}
		if err := g.fill(i); err != nil {
			return err
		}
		if err := g.dispatch(); err != nil {
			return err
		}
	}
	return nil
}

// fill writes pending output of connection i. In a closed loop it first sends a request in every
// free slot.
func (g *many) fill(i int) error {
	l := g.links[i]
	out := l.out()
	for g.open == nil && g.ready && len(l.free) > 0 && len(*out) < g.most {
		begin := g.now()
		for len(l.free) > 0 && len(*out) < g.most {
			g.send(l, begin)
		}
		if err := g.flush(l, i); err != nil {
			return err
		}
	}
	return g.flush(l, i)
}

// dispatch sends the arrived requests of an open loop while slots are free. It sends due requests
// in one write on one connection, and the next ones on the next connection.
func (g *many) dispatch() error {
	if g.open == nil {
		return nil
	}
	g.open.come(g.now())
	for g.free > 0 && g.open.waiting.len() > 0 {
		i := g.next
		g.next = (g.next + 1) % len(g.links)
		l := g.links[i]
		for len(l.free) > 0 && g.open.waiting.len() > 0 {
			g.send(l, g.open.waiting.pop())
		}
		if err := g.flush(l, i); err != nil {
			return err
		}
	}
	return nil
}

// send sends a request in a free slot; its latency counts from begin.
func (g *many) send(l *link, begin time.Duration) {
	slot := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	g.free--
	l.began[slot] = begin
	l.send(slot)
}

// answered counts the request of a slot and, unless it belongs to a burst, frees the slot.
func (l *link) answered(slot int) {
	g := l.load
	g.count(g.read - l.began[slot])
	l.began[slot] = 0
	if g.burst == 0 {
		l.free = append(l.free, slot)
		g.free++
	}
}

// flush writes the pending output; the poller reports when the socket accepts the rest.
func (g *many) flush(l *link, i int) error {
	out := l.out()
	if len(*out) == 0 {
		return nil
	}
	n, err := epoll.Write(l.fd, (*out)[l.sent:])
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("send: %w", err)
	}
	if l.sent += n; l.sent == len(*out) {
		*out, l.sent = (*out)[:0], 0
	}
	writes := len(*out) > 0
	if writes == l.writes {
		return nil
	}
	l.writes = writes
	events := uint32(epoll.Readable)
	if writes {
		events |= epoll.Writable
	}
	return g.poller.Modify(l.fd, int32(i), events)
}

// readable reads from connection i.
func (g *many) readable(i int) error {
	l := g.links[i]
	// The incomplete frame precedes the new data, so that the frame is contiguous.
	begin := copy(g.scratch[:], l.in)
	n, err := epoll.Read(l.fd, g.scratch[begin:])
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if n == 0 {
		return fmt.Errorf("read: connection %d ends with %d requests under way: %w", i+1, len(l.began)-len(l.free), io.ErrUnexpectedEOF)
	}
	if err := g.take(l, g.scratch[:begin+n]); err != nil {
		return fmt.Errorf("connection %d: %w", i+1, err)
	}
	return nil
}

// take passes data, which starts with the bytes kept from the last read, to the connection and
// keeps the unprocessed rest.
func (g *many) take(l *link, data []byte) error {
	g.read = g.now()
	rest, err := l.receive(data)
	l.in = append(l.in[:0], rest...)
	return err
}
