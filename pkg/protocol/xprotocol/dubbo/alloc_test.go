package dubbo

import (
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// requestWithKilobyte returns the captured request with an argument of 1 KB.
func requestWithKilobyte(tb testing.TB) []byte {
	frame := findCapture(tb, "01")
	before, after, found := strings.Cut(string(frame[headSize:]), "\x05world")
	if !found {
		tb.Fatal("no argument")
	}
	return newFrame(twoWay, 0, []byte(before), hessianStrings(strings.Repeat("x", 1024)), []byte(after))
}

// exchange holds a request and its response for the benchmarks.
type exchange struct {
	requestFrame, responseFrame []byte
	request                     request
	response                    protocol.Response
	dst                         []byte
}

func newExchange(tb testing.TB) *exchange {
	return &exchange{requestFrame: requestWithKilobyte(tb), responseFrame: findCapture(tb, "02"), dst: make([]byte, 0, 4096)}
}

func (x *exchange) readRequest() error {
	h := x.request.Header
	h.Reset()
	x.request.Request = protocol.Request{Message: protocol.Message{Header: h}}
	return Codec{}.ReadRequest(x.requestFrame, &x.request.Request, &x.request.view)
}

func (x *exchange) readResponse() error {
	h := x.response.Header
	h.Reset()
	x.response = protocol.Response{Message: protocol.Message{Header: h}}
	return Codec{}.ReadResponse(x.responseFrame, &x.response, &x.request.view)
}

func (x *exchange) appendRequest(remaining time.Duration) error {
	_, err := Codec{}.AppendRequest(x.dst, x.requestFrame, &x.request.Request, &x.request.view, remaining)
	return err
}

func (x *exchange) appendResponse() error {
	_, err := Codec{}.AppendResponse(x.dst, x.responseFrame, &x.response, &x.request.view)
	return err
}

// operations returns the operations that engines perform for each request, and operations on
// changed messages.
func operations(tb testing.TB, x *exchange) []struct {
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
		{"ParseFrame", func() error { _, err := Codec{}.ParseFrame(x.requestFrame); return err }},
		{"SetID", func() error { Codec{}.SetID(x.requestFrame, 9); return nil }},
		{"ReadRequest", x.readRequest},
		{"AppendRequest", func() error { return x.appendRequest(0) }},
		{"AppendRequest-lower", func() error { return x.appendRequest(time.Second) }},
		{"AppendRequest-changed", func() error { return changed.appendRequest(time.Second) }},
		{"ReadResponse", x.readResponse},
		{"AppendResponse", x.appendResponse},
		{"AppendResponse-changed", changed.appendResponse},
		{"AppendHeartbeat", func() error { Codec{}.AppendHeartbeat(x.dst, 9); return nil }},
		{"AppendHeartbeatAck", func() error { Codec{}.AppendHeartbeatAck(x.dst, x.requestFrame); return nil }},
	}
}

func TestCodecDoesNotAllocate(t *testing.T) {
	for _, c := range operations(t, newExchange(t)) {
		allocs := testing.AllocsPerRun(100, func() {
			if err := c.run(); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations, want 0", c.name, allocs)
		}
	}
}

// BenchmarkCodec measures a captured request with an argument of 1 KB and a captured response.
func BenchmarkCodec(b *testing.B) {
	for _, c := range operations(b, newExchange(b)) {
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
