package load

import (
	"fmt"

	"github.com/weft-proxy/weft/test/bench/frame"
)

const (
	// slotBits are the low bits of an id that tell the slot of its request.
	slotBits = 16
	// maxOut is how many bytes of a burst wait on a connection: it does not go into
	// its socket at once.
	maxOut = 256 << 10
)

// rpc speaks a protocol of package frame on one connection.
type rpc struct {
	*link
	protocol *frame.Protocol
	number   uint64 // of the connection: no other one has it
	hold     uint32 // in every request
	frames   []byte // to be written
	ids      []id   // by slot
}

// id is that of the request in a slot, and how often the slot was used: the upper
// part of the id.
type id struct{ value, turn uint64 }

func newRPC(job Job, p *frame.Protocol, m *meter) (*many, error) {
	hold := 0
	if job.Burst {
		hold = job.Connections * job.Depth
	}
	g, err := newMany(job, m, speakRPC(p, uint32(hold)))
	if err != nil {
		return nil, err
	}
	g.most, g.burst = maxOut, uint64(hold)
	return g, nil
}

// speakRPC returns what makes connections speak the protocol. The origin holds
// answers until as many requests have come as hold says.
func speakRPC(p *frame.Protocol, hold uint32) func(l *link, i int) dialect {
	return func(l *link, i int) dialect {
		return &rpc{link: l, protocol: p, number: uint64(i), hold: hold, ids: make([]id, len(l.began))}
	}
}

func (c *rpc) ready() bool { return true }

func (c *rpc) out() *[]byte { return &c.frames }

func (c *rpc) send(slot int) {
	q := &c.ids[slot]
	q.turn++
	q.value = (q.turn<<slotBits | uint64(slot)) & c.protocol.LargestID()
	c.frames = c.protocol.AppendRequest(c.frames, q.value, c.text(q.value))
}

// text returns what the request with the id has in its string: no other one under
// way has the same.
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
		case frame.Answer:
			if err := c.answer(f); err != nil {
				return nil, err
			}
		case frame.Ping:
			c.frames = c.protocol.AppendPong(c.frames, f.ID)
		case frame.Request:
			return nil, fmt.Errorf("request %d from the server", f.ID)
		default: // nothing to do
		}
	}
}

func (c *rpc) answer(f frame.Frame) error {
	slot := int(f.ID & (maxDepth - 1))
	if slot >= len(c.ids) || c.began[slot] == 0 || c.ids[slot].value != f.ID {
		return fmt.Errorf("an answer with id %#x, for which it does not wait", f.ID)
	}
	if !c.protocol.Is(f.Text, c.text(f.ID)) {
		return fmt.Errorf("the answer of request %#x has another string: %.40q", f.ID, f.Text)
	}
	c.answered(slot)
	return nil
}
