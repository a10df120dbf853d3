package load

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-proxy/weft/test/bench/epoll"
	"github.com/weft-proxy/weft/test/bench/frame"
)

const (
	// slotBits are the low bits of an id that tell the slot of its request.
	slotBits = 16
	maxDepth = 1 << slotBits
	// maxOut is how many bytes wait on a connection before the next requests are
	// built, for a burst does not go into its socket at once.
	maxOut = 256 << 10
)

// rpc generates frames: one event loop and its connections, each with many
// requests at a time. What is sent on a connection leaves in one write, and one
// read takes all that has come.
type rpc struct {
	*meter
	job      Job
	protocol *frame.Protocol
	hold     uint32 // in every request
	poller   *epoll.Poller
	conns    []rpcConn
	events   [256]epoll.Event
	scratch  [256 << 10]byte

	// Of the open loop.
	open *arrivals // nil: a closed loop, or a burst
	free int       // slots, of all connections
	next int       // the connection whose turn it is
}

// rpcConn is one connection.
type rpcConn struct {
	fd     int
	slots  []slot
	free   []uint16 // slots without a request
	in     []byte   // part of a frame
	out    []byte   // frames; those before sent were written
	sent   int
	writes bool // the poller watches for room to write
}

// slot is the place of a request in flight; that of a free one is zero.
type slot struct {
	id    uint64
	begin time.Duration // when it was sent, or arrived
	turn  uint64        // how often the slot was used: the upper part of the id
}

// newRPC returns a generator whose connections are open and idle.
func newRPC(job Job, p *frame.Protocol, m *meter) (*rpc, error) {
	poller, err := epoll.New()
	if err != nil {
		return nil, err
	}
	g := &rpc{meter: m, job: job, protocol: p, poller: poller}
	if job.Burst {
		g.hold = uint32(job.Connections * job.Depth)
	}
	for i := range job.Connections {
		fd, err := dial(poller, job.Address, i)
		if err != nil {
			g.close()
			return nil, fmt.Errorf("connection %d of %d: %w", i+1, job.Connections, err)
		}
		g.conns = append(g.conns, newRPCConn(fd, job.Depth))
	}
	g.free = job.Connections * job.Depth
	if job.Rate > 0 {
		g.open = newArrivals(job.Rate, g.now())
	}
	return g, nil
}

// newRPCConn returns a connection with free slots.
func newRPCConn(fd, depth int) rpcConn {
	c := rpcConn{fd: fd, slots: make([]slot, depth)}
	for i := depth - 1; i >= 0; i-- {
		c.free = append(c.free, uint16(i))
	}
	return c
}

func (g *rpc) close() {
	for i := range g.conns {
		_ = unix.Close(g.conns[i].fd) // all that was wanted has come
	}
	_ = g.poller.Close()
}

// until runs the loop up to the time, a burst at most to its last answer.
func (g *rpc) until(deadline time.Duration) error {
	for i := range g.conns {
		if err := g.fill(i); err != nil {
			return err
		}
	}
	heard := g.now()
	for {
		if err := g.dispatch(); err != nil {
			return err
		}
		now := g.now()
		if now >= deadline || g.job.Burst && g.all == uint64(g.hold) {
			return nil
		}
		if now-heard > stall && !g.job.Burst {
			return fmt.Errorf("no answer for %v", stall)
		}
		wake := deadline
		if g.open != nil && g.free > 0 {
			wake = min(wake, g.open.next)
		}
		n, err := g.poller.Wait(g.events[:], max(min(wake-now, stall), 0))
		if err != nil {
			return err
		}
		for _, e := range g.events[:n] {
			if err := g.handle(int(e.Token), e.Events); err != nil {
				return err
			}
		}
		if n > 0 {
			heard = now
		}
	}
}

// handle writes and reads connection i as it can, and sends what that makes room
// for.
func (g *rpc) handle(i int, events uint32) error {
	c := &g.conns[i]
	if events&^epoll.Writable != 0 { // errors and the end are read as well
		if err := g.readable(i); err != nil {
			return err
		}
	}
	if events&epoll.Writable != 0 || len(c.out) > 0 {
		if err := g.flush(c, i); err != nil {
			return err
		}
	}
	if err := g.fill(i); err != nil {
		return err
	}
	return g.dispatch()
}

// fill sends a request in every free slot of connection i, in a closed loop.
func (g *rpc) fill(i int) error {
	c := &g.conns[i]
	for g.open == nil && len(c.free) > 0 && len(c.out) == 0 {
		begin := g.now()
		for len(c.free) > 0 && len(c.out) < maxOut {
			g.send(i, begin)
		}
		if err := g.flush(c, i); err != nil {
			return err
		}
	}
	return nil
}

// dispatch sends the requests that have arrived, in an open loop, as far as there
// are slots: those that are due together on one connection, in one write, the next
// ones on the next.
func (g *rpc) dispatch() error {
	if g.open == nil {
		return nil
	}
	g.open.come(g.now())
	for g.free > 0 && g.open.waiting.len() > 0 {
		i := g.next
		g.next = (g.next + 1) % len(g.conns)
		c := &g.conns[i]
		for len(c.free) > 0 && g.open.waiting.len() > 0 {
			g.send(i, g.open.waiting.pop())
		}
		if err := g.flush(c, i); err != nil {
			return err
		}
	}
	return nil
}

// send appends a request, whose latency counts from begin, to what is to be
// written on connection i, which has a free slot.
func (g *rpc) send(i int, begin time.Duration) {
	c := &g.conns[i]
	at := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	g.free--
	s := &c.slots[at]
	s.turn++
	s.begin = begin
	s.id = (s.turn<<slotBits | uint64(at)) & g.protocol.LargestID()
	c.out = g.protocol.AppendRequest(c.out, s.id, g.text(i, s.id))
}

// text returns what the request on connection i has in its string: no other one
// in flight has the same.
func (g *rpc) text(i int, id uint64) frame.Text {
	return frame.Text{Hold: g.hold, Token: uint64(i)<<32 | id&(1<<32-1)}
}

// flush writes; what the socket does not take is written when it can.
func (g *rpc) flush(c *rpcConn, i int) error {
	if len(c.out) == 0 {
		return nil
	}
	n, err := epoll.Write(c.fd, c.out[c.sent:])
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("send: %w", err)
	}
	if c.sent += n; c.sent == len(c.out) {
		c.out, c.sent = c.out[:0], 0
	}
	writes := len(c.out) > 0
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
func (g *rpc) readable(i int) error {
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
		return fmt.Errorf("read: connection %d ends with %d requests in flight: %w", i+1, len(c.slots)-len(c.free), io.ErrUnexpectedEOF)
	}
	return g.receive(i, g.scratch[:begin+n])
}

// receive takes every whole frame of data, the first bytes of which were left
// over, and keeps the rest.
func (g *rpc) receive(i int, data []byte) error {
	c := &g.conns[i]
	now := g.now()
	for {
		n, f, err := g.protocol.Parse(data)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		data = data[n:]
		switch f.Kind {
		case frame.Answer:
			if err := g.answer(i, f, now); err != nil {
				return err
			}
		case frame.Ping:
			c.out = g.protocol.AppendPong(c.out, f.ID)
		case frame.Request:
			return fmt.Errorf("request %d from the server", f.ID)
		default: // nothing to do
		}
	}
	c.in = append(c.in[:0], data...)
	return nil
}

// answer takes an answer that came at the time on connection i.
func (g *rpc) answer(i int, f frame.Frame, now time.Duration) error {
	c := &g.conns[i]
	at := int(f.ID & (maxDepth - 1))
	if at >= len(c.slots) || c.slots[at].begin == 0 || c.slots[at].id != f.ID {
		return fmt.Errorf("an answer with id %#x, for which connection %d does not wait", f.ID, i+1)
	}
	if !g.protocol.Is(f.Text, g.text(i, f.ID)) {
		return fmt.Errorf("the answer of request %#x on connection %d has another string: %.40q", f.ID, i+1, f.Text)
	}
	s := &c.slots[at]
	g.count(now - s.begin)
	s.begin = 0
	if !g.job.Burst {
		c.free = append(c.free, uint16(at))
		g.free++
	}
	return nil
}
