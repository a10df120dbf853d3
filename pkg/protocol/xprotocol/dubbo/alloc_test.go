package dubbo

import (
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// kilobyte returns the captured request with an argument of 1 KB.
func kilobyte(tb testing.TB) []byte {
	frame := captured(tb, "01")
	before, after, found := strings.Cut(string(frame[headSize:]), "\x05world")
	if !found {
		tb.Fatal("no argument")
	}
	return frameOf(twoWay, 0, []byte(before), texts(strings.Repeat("x", 1024)), []byte(after))
}

// exchange holds a request and its response for the benchmarks.
type exchange struct {
	frame, answer []byte
	request       request
	response      protocol.Response
	dst           []byte
}

func newExchange(tb testing.TB) *exchange {
	return &exchange{frame: kilobyte(tb), answer: captured(tb, "02"), dst: make([]byte, 0, 4096)}
}

func (x *exchange) readRequest() error {
	h := x.request.Header
	h.Reset()
	x.request.Request = protocol.Request{Message: protocol.Message{Header: h}}
	return Codec{}.ReadRequest(x.frame, &x.request.Request, &x.request.view)
}

func (x *exchange) readResponse() error {
	h := x.response.Header
	h.Reset()
	x.response = protocol.Response{Message: protocol.Message{Header: h}}
	return Codec{}.ReadResponse(x.answer, &x.response, &x.request.view)
}

func (x *exchange) appendRequest(left time.Duration) error {
	_, err := Codec{}.AppendRequest(x.dst, x.frame, &x.request.Request, &x.request.view, left)
	return err
}

func (x *exchange) appendResponse() error {
	_, err := Codec{}.AppendResponse(x.dst, x.answer, &x.response, &x.request.view)
	return err
}

// benches returns the operations on every request, and those on requests with changed fields.
func benches(tb testing.TB, x *exchange) []struct {
	name string
	run  func() error
} {
	for _, read := range []func() error{x.readRequest, x.readResponse} {
		if err := read(); err != nil {
			tb.Fatal(err)
		}
	}
	changed := newExchange(tb)
	for _, read := range []func() error{changed.readRequest, changed.readResponse} {
		if err := read(); err != nil {
			tb.Fatal(err)
		}
	}
	changed.request.Header.Set("x-trace", "0123456789")
	changed.request.Header.Set("group", "g2")
	changed.response.Header.Set("x-trace", "0123456789")
	return []struct {
		name string
		run  func() error
	}{
		{"Next", func() error { _, err := Codec{}.ParseFrame(x.frame); return err }},
		{"SetID", func() error { Codec{}.SetID(x.frame, 9); return nil }},
		{"ReadRequest", x.readRequest},
		{"AppendRequest", func() error { return x.appendRequest(0) }},
		{"AppendRequest-lower", func() error { return x.appendRequest(time.Second) }},
		{"AppendRequest-changed", func() error { return changed.appendRequest(time.Second) }},
		{"ReadResponse", x.readResponse},
		{"AppendResponse", x.appendResponse},
		{"AppendResponse-changed", changed.appendResponse},
		{"AppendPing", func() error { Codec{}.AppendHeartbeat(x.dst, 9); return nil }},
		{"AppendPong", func() error { Codec{}.AppendHeartbeatAck(x.dst, x.frame); return nil }},
	}
}

func TestCodecDoesNotAllocate(t *testing.T) {
	for _, c := range benches(t, newExchange(t)) {
		allocs := testing.AllocsPerRun(100, func() {
			if err := c.run(); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations", c.name, allocs)
		}
	}
}

// BenchmarkCodec measures a captured request with an argument of 1 KB and a captured response.
func BenchmarkCodec(b *testing.B) {
	for _, c := range benches(b, newExchange(b)) {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
