package h2

import (
	"bytes"
	"fmt"
	"testing"
)

// connPair holds a client and a server.
type connPair struct {
	*testing.T
	client, server *Conn
	fromClient     []byte // an incomplete frame in transit
	fromServer     []byte
}

// recorder records the events of one Conn and lets a test respond to them.
type recorder struct {
	events []string
	onData func(s *Stream, b []byte, end bool)
}

func (r *recorder) OnFields(s *Stream, f Fields, end bool) error {
	r.events = append(r.events, fmt.Sprintf("fields path=%s status=%s grpc=%s end=%v", f.Path, f.Status, f.GRPCStatus, end))
	if f.Path != "" {
		s.Path = f.Path
	}
	if r.onData != nil {
		r.onData(s, nil, end)
	}
	return nil
}

func (r *recorder) OnData(s *Stream, b []byte, end bool) error {
	r.events = append(r.events, fmt.Sprintf("data %d end=%v", len(b), end))
	if r.onData != nil {
		r.onData(s, b, end)
	}
	return nil
}

// transfer passes the output of each Conn to the other in pieces of at most n bytes until neither
// has output.
func (p *connPair) transfer(n int) {
	p.Helper()
	preface := len(Preface)
	for len(p.client.Out)+len(p.server.Out) > 0 {
		for _, direction := range []struct {
			from, to *Conn
			rest     *[]byte
		}{{p.client, p.server, &p.fromClient}, {p.server, p.client, &p.fromServer}} {
			output := direction.from.Out
			direction.from.Out = nil
			if direction.from == p.client && bytes.HasPrefix(output, []byte(Preface)) {
				output = output[preface:]
			}
			for len(output) > 0 {
				size := min(n, len(output))
				rest, err := direction.to.Receive(append(*direction.rest, output[:size]...))
				if err != nil {
					p.Fatal(err)
				}
				*direction.rest = bytes.Clone(rest)
				output = output[size:]
			}
		}
	}
}

func TestCallSplitAtAnySize(t *testing.T) {
	for _, size := range []int{1, 7, 9, 100, 1 << 20} {
		var client, server recorder
		e := &connPair{T: t, client: NewClient(&client), server: NewServer(&server)}
		server.onData = func(s *Stream, _ []byte, end bool) {
			if end {
				e.server.SendHeaders(s, e.server.Encode(Request("/response")...), false)
				e.server.SendData(s, Message(10), true, Trailers())
			}
		}
		for range 2 { // the second header block consists of indexed fields
			client.events, server.events = nil, nil
			s := e.client.Open(e.client.Encode(Request(Unary)...), false)
			e.client.SendData(s, Message(3), true, nil)
			e.transfer(size)
			want := "[fields path=" + Unary + " status= grpc= end=false data 8 end=true]"
			if got := fmt.Sprint(server.events); got != want {
				t.Fatalf("pieces of %d: the server received %s, want %s", size, got, want)
			}
			want = "[fields path=/response status= grpc= end=false data 15 end=false fields path= status= grpc=0 end=true]"
			if got := fmt.Sprint(client.events); got != want {
				t.Fatalf("pieces of %d: the client received %s, want %s", size, got, want)
			}
		}
		if len(e.client.Streams)+len(e.server.Streams) > 0 {
			t.Errorf("%d and %d streams are open at the end, want none", len(e.client.Streams), len(e.server.Streams))
		}
		if !e.client.Ready || !e.server.Ready {
			t.Error("no SETTINGS received")
		}
	}
}

// TestFlowControl verifies that a message larger than every window is blocked and then
// delivered completely as window updates arrive.
func TestFlowControl(t *testing.T) {
	var client, server recorder
	e := &connPair{T: t, client: NewClient(&client), server: NewServer(&server)}
	e.transfer(1 << 20)
	const size = 3*Window + 12345
	sent := make([]byte, size)
	for i := range sent {
		sent[i] = byte(i >> 8)
	}
	var got []byte
	server.onData = func(_ *Stream, b []byte, _ bool) { got = append(got, b...) }
	s := e.client.Open(e.client.Encode(Request(Echo)...), false)
	e.client.SendData(s, sent, true, nil)
	if !s.Blocked() || len(e.client.Out) > Window+Window/100 {
		t.Errorf("%d bytes sent immediately, blocked: %v, want a window of %d", len(e.client.Out), s.Blocked(), Window)
	}
	e.transfer(1 << 20)
	if !bytes.Equal(got, sent) || s.Blocked() {
		t.Errorf("%d bytes received, blocked: %v, want all %d", len(got), s.Blocked(), size)
	}
}

func TestConnectionErrors(t *testing.T) {
	for name, frame := range map[string][]byte{
		"GOAWAY":                               {0, 0, 8, typeGoAway, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"RST_STREAM":                           {0, 0, 4, typeReset, 0, 0, 0, 0, 1, 0, 0, 0, 7},
		"headers on a stream that is not open": {0, 0, 1, typeHeaders, flagEndHeaders, 0, 0, 0, 9, 0x88},
		"invalid block":                        {0, 0, 1, typeHeaders, flagEndHeaders, 0, 0, 0, 1, 0xff},
		"frame too large":                      {1, 0, 0, typeData, 0, 0, 0, 0, 1},
	} {
		var client recorder
		c := NewClient(&client)
		c.Open(c.Encode(Request("/b/1")...), true)
		if _, err := c.Receive(frame); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
