package load

import (
	"fmt"

	"github.com/weft-proxy/weft/test/bench/frame"
)

const (
	// slotBits is the number of low bits of an id that hold the slot.
	slotBits = 16
	// maxPendingBytes is the number of pending bytes per connection above which the generator adds
	// no request, because a burst exceeds the socket buffer.
	maxPendingBytes = 256 << 10
)

// rpc implements protocolConn for a protocol of package frame.
type rpc struct {
	*muxConn
	protocol *frame.Protocol
	number   uint64 // unique index of the connection
	hold     uint32 // Text.Hold of every request
	frames   []byte // pending output
	ids      []id   // by slot
}

// id holds the id of the request in a slot, and how often the slot was used: the upper bits of the
// id.
type id struct{ value, useCount uint64 }

func newRPC(job Job, p *frame.Protocol, m *meter) (*multiplexed, error) {
	hold := 0
	if job.Burst {
		hold = job.Connections * job.Depth
	}
	g, err := newMultiplexed(job, m, newRPCConn(p, uint32(hold)))
	if err != nil {
		return nil, err
	}
	g.maxPending, g.burstSize = maxPendingBytes, uint64(hold)
	return g, nil
}

// newRPCConn returns a function that creates the rpc of a connection. The origin holds the
// responses until hold requests have arrived.
func newRPCConn(p *frame.Protocol, hold uint32) func(c *muxConn, i int) protocolConn {
	return func(c *muxConn, i int) protocolConn {
		return &rpc{muxConn: c, protocol: p, number: uint64(i), hold: hold, ids: make([]id, len(c.startTimes))}
	}
}

func (c *rpc) ready() bool { return true }

func (c *rpc) out() *[]byte { return &c.frames }

func (c *rpc) send(slot int) {
	current := &c.ids[slot]
	current.useCount++
	current.value = (current.useCount<<slotBits | uint64(slot)) & c.protocol.LargestID()
	c.frames = c.protocol.AppendRequest(c.frames, current.value, c.text(current.value))
}

// text returns the Text of the request with the id; it is unique among the requests in flight.
func (c *rpc) text(id uint64) frame.Text {
	return frame.Text{Hold: c.hold, Token: c.number<<32 | id&(1<<32-1)}
}

func (c *rpc) receive(data []byte) (rest []byte, err error) {
	for {
		n, f, err := c.protocol.Parse(data)
		if n == 0 || err != nil {
			return data, err
		}
		data = data[n:]
		switch f.Kind {
		case frame.Response:
			if err := c.handleResponse(f); err != nil {
				return nil, err
			}
		case frame.Ping:
			c.frames = c.protocol.AppendPong(c.frames, f.ID)
		case frame.Request:
			return nil, fmt.Errorf("request %d from the server", f.ID)
		default: // a one-way message needs no response
		}
	}
}

func (c *rpc) handleResponse(f frame.Frame) error {
	slot := int(f.ID & (maxDepth - 1))
	if slot >= len(c.ids) || c.startTimes[slot] == 0 || c.ids[slot].value != f.ID {
		return fmt.Errorf("unexpected response with id %#x", f.ID)
	}
	if !c.protocol.HasText(f.Text, c.text(f.ID)) {
		return fmt.Errorf("the response to request %#x has another string: %.40q", f.ID, f.Text)
	}
	c.finish(slot)
	return nil
}
