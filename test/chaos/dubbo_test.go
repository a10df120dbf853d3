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
	// dubboMaxFrame is the maximum body size of the tests.
	dubboMaxFrame = 64 << 10
)

// readDubbo reads one complete frame.
func readDubbo(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(dubboHead)
	if err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[12:])
	if magic := binary.BigEndian.Uint16(head); magic != dubboMagic || size > dubboMaxFrame {
		return nil, fmt.Errorf("unexpected frame header % x", head)
	}
	b := make([]byte, dubboHead+int(size))
	_, err = io.ReadFull(r, b)
	return b, err
}

// rpcConn is one connection of a dubboClient.
type rpcConn struct {
	socket net.Conn

	writeMu sync.Mutex // serializes writes to socket

	mu       sync.Mutex // guards the following fields
	pending  map[uint64]chan rpcResponse
	closing  bool  // Weft accepts no more calls
	closeErr error // why the connection has closed; nil: it is open
}

// rpcResponse is a response frame, or the error that replaces it.
type rpcResponse struct {
	frame []byte
	err   error
}

// errNoMoreCalls reports that a call was not sent, because the connection accepts no more calls.
var errNoMoreCalls = errors.New("weft accepts no more calls")

func (c *rpcConn) acceptsCalls() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closing && c.closeErr == nil
}

// send sends a request and returns the channel of its response.
func (c *rpcConn) send(id uint64, request []byte) (<-chan rpcResponse, error) {
	response := make(chan rpcResponse, 1)
	c.mu.Lock()
	if c.closing || c.closeErr != nil {
		c.mu.Unlock()
		return nil, errNoMoreCalls
	}
	c.pending[id] = response
	c.mu.Unlock()
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if _, err := c.socket.Write(request); err != nil {
		c.closeWithError(err) // delivers the error to the channel
	}
	return response, nil
}

// dropCall removes a pending call whose caller no longer waits for the response.
func (c *rpcConn) dropCall(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// closeWithError closes the connection and fails all pending calls.
func (c *rpcConn) closeWithError(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closeErr != nil {
		return
	}
	c.closeErr = err
	_ = c.socket.Close() // pending responses are lost
	for id, response := range c.pending {
		response <- rpcResponse{err: err}
		delete(c.pending, id)
	}
}

// readLoop delivers responses to their calls until the connection ends.
func (c *rpcConn) readLoop() {
	r := bufio.NewReader(c.socket)
	for {
		b, err := readDubbo(r)
		if err != nil {
			c.closeWithError(err)
			return
		}
		c.handleFrame(b)
	}
}

// handleFrame processes one frame.
func (c *rpcConn) handleFrame(b []byte) {
	const request, twoWay, event = 0x80, 0x40, 0x20
	flags, id := b[2], binary.BigEndian.Uint64(b[4:])
	c.mu.Lock()
	response := c.pending[id]
	switch {
	case flags&event != 0 && flags&request != 0 && flags&twoWay == 0:
		c.closing = true // Dubbo's read-only event
		response = nil
	case flags&event != 0:
		response = nil // a heartbeat
	default:
		delete(c.pending, id)
	}
	done := c.closing && len(c.pending) == 0
	c.mu.Unlock()
	if response != nil {
		response <- rpcResponse{frame: b}
	}
	if done {
		c.closeWithError(errNoMoreCalls)
	}
}

// check verifies that the response belongs to the request.
func (resp rpcResponse) check(p *frame.Protocol, id uint64) error {
	if resp.err != nil {
		return transportFailure(resp.err)
	}
	if status := resp.frame[3]; status != dubboOK {
		return newFailure(fmt.Sprintf("status %d", status), "%.200q", resp.frame[dubboHead:])
	}
	_, f, err := p.Parse(resp.frame)
	if err != nil || f.Kind != frame.Response || !p.HasText(f.Text, frame.Text{Token: id}) {
		return newFailure(wrongResponse, "call %d: kind %d, %.60q, %w", id, f.Kind, f.Text, err)
	}
	return nil
}
