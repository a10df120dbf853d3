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

// newTestRPC returns a generator with two connections, of which none is open, and
// one request under way in each slot.
func newTestRPC(p *frame.Protocol, depth int) *rpc {
	g := &rpc{meter: &meter{base: time.Now()}, protocol: p, job: Job{Connections: 2, Depth: depth}, free: 2 * depth}
	for i := range g.job.Connections {
		g.conns = append(g.conns, newRPCConn(-1, depth))
		for range depth {
			g.send(i, g.now())
		}
	}
	return g
}

// answers returns what the origin answers to the requests that the connection is
// to write, in their order.
func answers(t *testing.T, p *frame.Protocol, c *rpcConn) [][]byte {
	t.Helper()
	var all [][]byte
	for rest := c.out; len(rest) > 0; {
		n, f, err := p.Parse(rest)
		if err != nil || n == 0 || f.Kind != frame.Request {
			t.Fatalf("Parse(%.40x) = %d, %+v, %v, want a request", rest, n, f, err)
		}
		all = append(all, p.AppendAnswer(nil, f.ID, f.Text))
		rest = rest[n:]
	}
	c.out = c.out[:0]
	return all
}

// feed gives connection i the piece after what is left over, as readable does.
func feed(g *rpc, i int, piece []byte) error {
	return g.receive(i, append(bytes.Clone(g.conns[i].in), piece...))
}

// TestAnswersInAnyPieces feeds answers out of order, with a heartbeat between
// them, cut at every place.
func TestAnswersInAnyPieces(t *testing.T) {
	for _, p := range frame.All() {
		t.Run(p.Name(), func(t *testing.T) {
			g := newTestRPC(p, 3)
			c := &g.conns[1]
			for cut := 1; ; cut++ {
				input := answers(t, p, c)
				slices.Reverse(input)
				stream := bytes.Join(slices.Insert(input, 1, p.AppendPing(nil, 99)), nil)
				if cut == len(stream) {
					break
				}
				before := g.all
				for _, piece := range [][]byte{stream[:cut], stream[cut:]} {
					if err := feed(g, 1, piece); err != nil {
						t.Fatalf("cut at %d: %v", cut, err)
					}
				}
				if got := g.all - before; got != 3 || len(c.in) > 0 || len(c.free) != 3 || g.free != 3 {
					t.Fatalf("cut at %d: %d answers, %d bytes left over, %d free, want 3, 0 and 3", cut, got, len(c.in), len(c.free))
				}
				if n, f, err := p.Parse(c.out); n != len(c.out) || f.Kind != frame.Pong || f.ID != 99 || err != nil {
					t.Fatalf("cut at %d: the heartbeat is answered %x: %+v, %v", cut, c.out, f, err)
				}
				c.out = c.out[:0]
				for range 3 {
					g.send(1, g.now())
				}
			}
		})
	}
}

func TestAnswersThatBelongToNoRequestEndTheRun(t *testing.T) {
	p, err := frame.Find("bolt")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		answer func(g *rpc, own, other []byte) []byte
		fails  string
	}{
		{"twice", func(_ *rpc, own, _ []byte) []byte { return append(own, own...) }, "does not wait"},
		{"with an id of no slot", func(g *rpc, _, _ []byte) []byte { return p.AppendAnswer(nil, 5, g.stringOf(0)) }, "does not wait"},
		{"with an old id of the slot", func(g *rpc, own, _ []byte) []byte {
			if err := feed(g, 0, own); err != nil {
				t.Fatal(err)
			}
			g.send(0, g.now())
			return own
		}, "does not wait"},
		{"of a request on another connection", func(_ *rpc, _, other []byte) []byte { return other }, "another string"},
		{"with the string of another request", func(g *rpc, _, _ []byte) []byte {
			return p.AppendAnswer(nil, g.conns[0].slots[0].id, g.stringOf(1))
		}, "another string"},
		{"that is a request", func(g *rpc, _, _ []byte) []byte { return p.AppendRequest(nil, 1, frame.Text{}) }, "from the server"},
		{"that is nothing", func(*rpc, []byte, []byte) []byte { return []byte("HTTP/1.1 400") }, "begins with"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := newTestRPC(p, 2)
			own, other := answers(t, p, &g.conns[0])[0], answers(t, p, &g.conns[1])[0]
			b := test.answer(g, own, other)
			if err := feed(g, 0, b); err == nil || !strings.Contains(err.Error(), test.fails) {
				t.Errorf("error %v of %.40x, want one with %q", err, b, test.fails)
			}
		})
	}
}

// stringOf returns the string of the request in the slot of connection 0.
func (g *rpc) stringOf(at int) []byte {
	_, f, err := g.protocol.Parse(g.protocol.AppendRequest(nil, 0, g.text(0, g.conns[0].slots[at].id)))
	if err != nil {
		panic("load: " + err.Error())
	}
	return f.Text
}

func TestIDsStayWithinThoseOfTheProtocol(t *testing.T) {
	for _, p := range frame.All() {
		g := newTestRPC(p, 1)
		c := &g.conns[0]
		c.slots[0].turn = p.LargestID() >> slotBits // the last one before it begins anew
		for range 2 {
			for _, answer := range answers(t, p, c) {
				if err := feed(g, 0, answer); err != nil {
					t.Fatalf("%s: turn %d: %v", p.Name(), c.slots[0].turn, err)
				}
			}
			g.send(0, g.now())
		}
		if g.all != 2 {
			t.Errorf("%s: %d answers, want 2", p.Name(), g.all)
		}
	}
}

func TestJobsThatCannotBeRun(t *testing.T) {
	good := Job{Address: netip.MustParseAddrPort("127.0.0.1:1"), Protocol: "dubbo", Connections: 1, Depth: 1, Measure: time.Second}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Job){
		"nothing in flight":      func(j *Job) { j.Depth = 0 },
		"too many in flight":     func(j *Job) { j.Depth = maxDepth + 1 },
		"a burst at a rate":      func(j *Job) { j.Burst, j.Rate = true, 1 },
		"a burst of HTTP":        func(j *Job) { j.Burst, j.Protocol, j.Request = true, "", []byte("GET") },
		"no request of HTTP":     func(j *Job) { j.Protocol = "" },
		"no connection":          func(j *Job) { j.Connections = 0 },
		"a protocol of no peers": func(j *Job) { j.Protocol = "tars" },
		"no time":                func(j *Job) { j.Measure = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			job := good
			change(&job)
			if _, err := Run(job); err == nil {
				t.Errorf("Run(%+v): no error", job)
			}
		})
	}
}
