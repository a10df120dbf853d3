package chaos

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/weft-proxy/weft/test/bench/frame"
)

const (
	dubboHead  = 16
	dubboMagic = 0xdabb
	dubboOK    = 20
	// dubboMost is the maximum body size of the tests.
	dubboMost = 64 << 10
)

// readDubbo reads one complete frame.
func readDubbo(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(dubboHead)
	if err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[12:])
	if magic := binary.BigEndian.Uint16(head); magic != dubboMagic || size > dubboMost {
		return nil, fmt.Errorf("a frame that begins with % x", head)
	}
	b := make([]byte, dubboHead+int(size))
	_, err = io.ReadFull(r, b)
	return b, err
}

// rpcConn is one connection of an rpc client.
type rpcConn struct {
	socket net.Conn

	writing sync.Mutex // held while a frame is written

	mu      sync.Mutex // guards the following fields
	waiting map[uint64]chan rpcAnswer
	leaving bool  // the other side accepts no more calls
	ended   error // why the connection has closed; nil: it is open
}

// rpcAnswer is a response frame, or the error that replaces it.
type rpcAnswer struct {
	frame []byte
	err   error
}

// errLeaving is returned for a call that was not sent because the connection accepts no more calls.
var errLeaving = errors.New("the peer wants no more calls")

func (c *rpcConn) takesCalls() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.leaving && c.ended == nil
}

// send sends a request and returns the channel of its response.
func (c *rpcConn) send(id uint64, request []byte) (<-chan rpcAnswer, error) {
	answer := make(chan rpcAnswer, 1)
	c.mu.Lock()
	if c.leaving || c.ended != nil {
		c.mu.Unlock()
		return nil, errLeaving
	}
	c.waiting[id] = answer
	c.mu.Unlock()
	c.writing.Lock()
	defer c.writing.Unlock()
	if _, err := c.socket.Write(request); err != nil {
		c.end(err) // delivers the error to the channel
	}
	return answer, nil
}

// forget drops a call whose caller no longer waits.
func (c *rpcConn) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// end closes the connection and fails all pending calls.
func (c *rpcConn) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return
	}
	c.ended = err
	_ = c.socket.Close() // pending responses are lost
	for id, answer := range c.waiting {
		answer <- rpcAnswer{err: err}
		delete(c.waiting, id)
	}
}

// read delivers responses to their calls until the connection ends.
func (c *rpcConn) read() {
	r := bufio.NewReader(c.socket)
	for {
		b, err := readDubbo(r)
		if err != nil {
			c.end(err)
			return
		}
		c.receive(b)
	}
}

// receive processes one frame.
func (c *rpcConn) receive(b []byte) {
	const request, twoWay, event = 0x80, 0x40, 0x20
	flags, id := b[2], binary.BigEndian.Uint64(b[4:])
	c.mu.Lock()
	answer := c.waiting[id]
	switch {
	case flags&event != 0 && flags&request != 0 && flags&twoWay == 0:
		c.leaving = true // Dubbo's read-only event
		answer = nil
	case flags&event != 0:
		answer = nil // a heartbeat
	default:
		delete(c.waiting, id)
	}
	done := c.leaving && len(c.waiting) == 0
	c.mu.Unlock()
	if answer != nil {
		answer <- rpcAnswer{frame: b}
	}
	if done {
		c.end(errLeaving)
	}
}

// check verifies that the response belongs to the request.
func (a rpcAnswer) check(p *frame.Protocol, id uint64) error {
	if a.err != nil {
		return transportFailure(a.err)
	}
	if status := a.frame[3]; status != dubboOK {
		return fail(fmt.Sprintf("status %d", status), "%.200q", a.frame[dubboHead:])
	}
	_, f, err := p.Parse(a.frame)
	if err != nil || f.Kind != frame.Answer || !p.Is(f.Text, frame.Text{Token: id}) {
		return fail(wrong, "call %d: kind %d, %.60q, %w", id, f.Kind, f.Text, err)
	}
	return nil
}
