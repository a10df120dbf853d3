package load

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/bench/frame"
)

// newTestRPC returns two connections without sockets, with one request in flight in each slot.
func newTestRPC(p *frame.Protocol, depth int) (g *multiplexed, first, second *rpc) {
	g = &multiplexed{meter: &meter{base: time.Now()}, job: Job{Connections: 2, Depth: depth}}
	for range g.job.Connections {
		c := g.add(-1, newRPCConn(p, 0))
		for range depth {
			g.send(c, g.now())
		}
	}
	return g, g.conns[0].protocolConn.(*rpc), g.conns[1].protocolConn.(*rpc)
}

// originResponses returns the origin's responses to the pending requests of the connection, in
// order.
func originResponses(t *testing.T, c *rpc) [][]byte {
	t.Helper()
	var all [][]byte
	for rest := c.frames; len(rest) > 0; {
		n, f, err := c.protocol.Parse(rest)
		if err != nil || n == 0 || f.Kind != frame.Request {
			t.Fatalf("Parse(%.40x) = %d, %+v, %v, want a request", rest, n, f, err)
		}
		all = append(all, c.protocol.AppendResponse(nil, f.ID, f.Text))
		rest = rest[n:]
	}
	c.frames = c.frames[:0]
	return all
}

// feed passes the unprocessed bytes and a piece of input to the connection, like handleReadable.
func feed(c *rpc, piece []byte) error {
	return c.generator.consume(c.muxConn, append(bytes.Clone(c.input), piece...))
}

// TestResponsesSplitAnywhere verifies that responses out of order, with a heartbeat among them, are
// counted wherever the input is split.
func TestResponsesSplitAnywhere(t *testing.T) {
	for _, p := range frame.All() {
		t.Run(p.Name(), func(t *testing.T) {
			g, _, c := newTestRPC(p, 3)
			for split := 1; ; split++ {
				input := originResponses(t, c)
				slices.Reverse(input)
				stream := bytes.Join(slices.Insert(input, 1, p.AppendPing(nil, 99)), nil)
				if split == len(stream) {
					break
				}
				before := g.all
				for _, piece := range [][]byte{stream[:split], stream[split:]} {
					if err := feed(c, piece); err != nil {
						t.Fatalf("split at %d: %v", split, err)
					}
				}
				if got := g.all - before; got != 3 || len(c.input) > 0 || len(c.freeSlots) != 3 || g.freeSlots != 3 {
					t.Fatalf("split at %d: %d responses, %d remaining bytes, %d free slots, want 3, 0 and 3", split, got, len(c.input), len(c.freeSlots))
				}
				if n, f, err := p.Parse(c.frames); n != len(c.frames) || f.Kind != frame.Pong || f.ID != 99 || err != nil {
					t.Fatalf("split at %d: response to the heartbeat %x: %+v, %v; want a pong with id 99", split, c.frames, f, err)
				}
				c.frames = c.frames[:0]
				for range 3 {
					g.send(c.muxConn, g.now())
				}
			}
		})
	}
}

func TestUnexpectedResponseEndsRun(t *testing.T) {
	p, err := frame.Find("bolt")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name     string
		response func(c *rpc, request, other []byte) []byte
		wantErr  string
	}{
		{"twice", func(_ *rpc, request, _ []byte) []byte { return append(request, request...) }, "unexpected response"},
		{"id without a slot", func(c *rpc, _, _ []byte) []byte { return p.AppendResponse(nil, 5, c.requestText(0)) }, "unexpected response"},
		{"previous id of the slot", func(c *rpc, request, _ []byte) []byte {
			if err := feed(c, request); err != nil {
				t.Fatal(err)
			}
			c.generator.send(c.muxConn, c.generator.now())
			return request
		}, "unexpected response"},
		{"request of another connection", func(_ *rpc, _, other []byte) []byte { return other }, "another string"},
		{"string of another request", func(c *rpc, _, _ []byte) []byte {
			return p.AppendResponse(nil, c.ids[0].value, c.requestText(1))
		}, "another string"},
		{"request", func(*rpc, []byte, []byte) []byte { return p.AppendRequest(nil, 1, frame.Text{}) }, "from the server"},
		{"not a frame", func(*rpc, []byte, []byte) []byte { return []byte("HTTP/1.1 400") }, "begins with"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, first, second := newTestRPC(p, 2)
			request, other := originResponses(t, first)[0], originResponses(t, second)[0]
			b := test.response(first, request, other)
			if err := feed(first, b); err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("error %v for %.40x, want one with %q", err, b, test.wantErr)
			}
		})
	}
}

// requestText returns the string of the request in the slot.
func (c *rpc) requestText(slot int) []byte {
	_, f, err := c.protocol.Parse(c.protocol.AppendRequest(nil, 0, c.text(c.ids[slot].value)))
	if err != nil {
		panic("load: " + err.Error())
	}
	return f.Text
}

func TestIDsWrapAround(t *testing.T) {
	for _, p := range frame.All() {
		g, c, _ := newTestRPC(p, 1)
		c.ids[0].useCount = p.LargestID() >> slotBits // the last use before the id wraps around
		for range 2 {
			for _, response := range originResponses(t, c) {
				if err := feed(c, response); err != nil {
					t.Fatalf("%s: use %d: %v", p.Name(), c.ids[0].useCount, err)
				}
			}
			g.send(c.muxConn, g.now())
		}
		if g.all != 2 {
			t.Errorf("%s: %d responses, want 2", p.Name(), g.all)
		}
	}
}

func TestInvalidRPCJobs(t *testing.T) {
	valid := Job{Address: netip.MustParseAddrPort("127.0.0.1:1"), Protocol: "dubbo", Connections: 1, Depth: 1, Measure: time.Second}
	if err := valid.check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Job){
		"depth 0":           func(j *Job) { j.Depth = 0 },
		"depth too large":   func(j *Job) { j.Depth = maxDepth + 1 },
		"burst with a rate": func(j *Job) { j.Burst, j.Rate = true, 1 },
		"burst over HTTP":   func(j *Job) { j.Burst, j.Protocol, j.Request = true, "", []byte("GET") },
		"no HTTP request":   func(j *Job) { j.Protocol = "" },
		"no connection":     func(j *Job) { j.Connections = 0 },
		"unknown protocol":  func(j *Job) { j.Protocol = "tars" },
		"no duration":       func(j *Job) { j.Measure = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			job := valid
			change(&job)
			if _, err := Run(job); err == nil {
				t.Errorf("Run(%+v): no error", job)
			}
		})
	}
}
