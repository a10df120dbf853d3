package http2

import (
	"bytes"
	"io"
	"strings"
	"testing"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// grpcCall is a unary gRPC call that is repeated: only traceparent differs between calls.
type grpcCall struct {
	req         protocol.Request
	resp        protocol.Response
	trailer     protocol.Header
	traceparent []byte // backs the value of the traceparent header; changeTraceparent modifies it in place
	calls       int
}

func newGRPCCall() *grpcCall {
	c := &grpcCall{req: *newGetRequest("/helloworld.Greeter/SayHello"), resp: *newResponse(200, -1)}
	c.req.Method = "POST"
	c.req.ContentLength = -1
	c.traceparent = []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	c.req.Header.Add("content-type", "application/grpc")
	c.req.Header.Add("user-agent", "grpc-go/1.80.0")
	c.req.Header.Add("grpc-timeout", "999876u")
	c.req.Header.Add("x-tenant", "blue")
	c.req.Header.Add("traceparent", unsafeString(c.traceparent))
	c.resp.Header.Add("content-type", "application/grpc")
	c.trailer.Add("grpc-status", "0")
	return c
}

// changeTraceparent changes the value of the traceparent header for the next call.
func (c *grpcCall) changeTraceparent() {
	c.calls++
	for i, n := 4, c.calls; i < 20; i, n = i+1, n>>4 {
		c.traceparent[i] = "0123456789abcdef"[n&15]
	}
}

// fields returns the header section of the call's request.
func (c *grpcCall) fields() []hpack.HeaderField {
	list := []hpack.HeaderField{
		{Name: ":method", Value: c.req.Method},
		{Name: ":scheme", Value: c.req.Scheme},
		{Name: ":path", Value: c.req.Path},
		{Name: ":authority", Value: c.req.Authority},
	}
	for name, value := range c.req.Header.All() {
		list = append(list, hpack.HeaderField{Name: name, Value: value})
	}
	return append(list, hpack.HeaderField{Name: "te", Value: "trailers"})
}

// benchPair is both sides of a connection, with storage that is reused as in an engine.
type benchPair struct {
	tb                 testing.TB
	client, server     *Session
	toServer, toClient []byte
	fieldText          [2][]byte // storage of the received strings, by the receiver's role
	got                protocol.Exchange
	message            []byte
}

func newBenchPair(tb testing.TB) *benchPair {
	p := &benchPair{
		tb:      tb,
		client:  NewSession(Config{Role: Client}),
		server:  NewSession(Config{Role: Server}),
		message: make([]byte, 128),
	}
	p.got.Reset()
	p.toServer = p.client.AppendPreface(nil)[len(Preface):]
	p.toClient = p.server.AppendPreface(nil)
	for len(p.toServer)+len(p.toClient) > 0 {
		p.deliver(p.server, &p.toServer, &p.toClient)
		p.deliver(p.client, &p.toClient, &p.toServer)
	}
	return p
}

// deliver passes all frames of in to s, takes their messages, and returns the stream of the last
// event.
func (p *benchPair) deliver(s *Session, in, out *[]byte) *Stream {
	var last *Stream
	remaining := *in
	for len(remaining) > 0 {
		f, n, err := ParseFrame(remaining, s.MaxFrameSize())
		if n == 0 || err != nil {
			p.tb.Fatalf("ParseFrame: n = %d, error %v; want a complete frame", n, err)
		}
		remaining = remaining[n:]
		var e Event
		if *out, err = s.Handle(*out, f, epoch, &e); err != nil {
			p.tb.Fatal(err)
		}
		switch e.Kind {
		case HeadersArrived:
			text := p.fieldText[s.cfg.Role][:0]
			if s.cfg.Role == Server {
				p.got.Request.Header.Reset()
				if text, err = s.TakeRequest(&p.got.Request, text); err != nil {
					p.tb.Fatal(err)
				}
			} else {
				p.got.Response.Header.Reset()
				text = s.TakeResponse(e.Stream, &p.got.Response, text)
			}
			p.fieldText[s.cfg.Role] = text
		case TrailersArrived:
			p.got.Response.Trailer.Reset()
			p.fieldText[s.cfg.Role] = s.TakeTrailer(&p.got.Response.Trailer, p.fieldText[s.cfg.Role])
		case DataArrived:
			*out = s.ReportConsumed(*out, e.Stream, len(e.Data))
		default:
		}
		if e.Stream != nil {
			last = e.Stream
		}
	}
	*in = (*in)[:0]
	return last
}

// roundTrip makes one call: the request's head and message, then the response's head, message and
// trailers.
func (p *benchPair) roundTrip(c *grpcCall) {
	c.changeTraceparent()
	var clientStream *Stream
	var err error
	if p.toServer, clientStream, err = p.client.AppendRequest(p.toServer, &c.req, RequestOptions{AcceptsTrailers: true}); err != nil {
		p.tb.Fatal(err)
	}
	if p.toServer, _, err = p.client.AppendData(p.toServer, clientStream, p.message, true); err != nil {
		p.tb.Fatal(err)
	}
	serverStream := p.deliver(p.server, &p.toServer, &p.toClient)
	if p.toClient, err = p.server.AppendResponse(p.toClient, serverStream, &c.resp, ResponseOptions{}); err != nil {
		p.tb.Fatal(err)
	}
	if p.toClient, _, err = p.server.AppendData(p.toClient, serverStream, p.message, false); err != nil {
		p.tb.Fatal(err)
	}
	if p.toClient, err = p.server.AppendTrailer(p.toClient, serverStream, &c.trailer); err != nil {
		p.tb.Fatal(err)
	}
	p.deliver(p.client, &p.toClient, &p.toServer)
	p.toClient = p.server.Release(p.toClient, serverStream, Cancel)
	p.toServer = p.client.Release(p.toServer, clientStream, Cancel)
}

// TestUnaryAllocs verifies that after some warm-up calls a call allocates nothing on either side,
// although each call has a different traceparent.
func TestUnaryAllocs(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant checks allocate")
	}
	p, c := newBenchPair(t), newGRPCCall()
	for range 100 {
		p.roundTrip(c)
	}
	if n := testing.AllocsPerRun(1000, func() { p.roundTrip(c) }); n != 0 {
		t.Fatalf("%v allocations per call, want 0", n)
	}
	if got := p.got.Request.Header.Get("traceparent"); got != string(c.traceparent) {
		t.Fatalf("received traceparent %q, want %q", got, c.traceparent)
	}
	if got := p.got.Response.Trailer.Get("grpc-status"); got != "0" {
		t.Fatalf("received grpc-status %q, want 0", got)
	}
}

func BenchmarkUnary(b *testing.B) {
	p, c := newBenchPair(b), newGRPCCall()
	b.ReportAllocs()
	for b.Loop() {
		p.roundTrip(c)
	}
}

// BenchmarkFrames parses the frames of one read of a call: HEADERS, DATA, WINDOW_UPDATE and PING.
func BenchmarkFrames(b *testing.B) {
	input := AppendHeaders(nil, 1, make([]byte, 40), false, MinFrameSize)
	input = AppendData(input, 1, make([]byte, 128), true)
	input = AppendWindowUpdate(input, 0, 100)
	input = AppendPing(input, false, [8]byte{})
	b.Run("weft", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			frames := 0
			for rest := input; len(rest) > 0; frames++ {
				_, n, err := ParseFrame(rest, MinFrameSize)
				if err != nil {
					b.Fatal(err)
				}
				rest = rest[n:]
			}
			if frames != 4 {
				b.Fatalf("%d frames, want 4", frames)
			}
		}
	})
	b.Run("xnet", func(b *testing.B) {
		r := bytes.NewReader(input)
		framer := xhttp2.NewFramer(io.Discard, r)
		framer.SetReuseFrames()
		b.ReportAllocs()
		for b.Loop() {
			r.Reset(input)
			for range 4 {
				if _, err := framer.ReadFrame(); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

// BenchmarkDecodeRequest decodes a header block with a literal traceparent. All other fields are
// indexes into the dynamic table, which x/net's encoder filled.
func BenchmarkDecodeRequest(b *testing.B) {
	c := newGRPCCall()
	var wire bytes.Buffer
	e := hpack.NewEncoder(&wire)
	var warmup []byte
	for range 2 {
		warmup = bytes.Clone(wire.Bytes())
		wire.Reset()
		for _, f := range c.fields() {
			if f.Name == "traceparent" {
				continue
			}
			if err := e.WriteField(f); err != nil {
				b.Fatal(err)
			}
		}
	}
	block := appendText(appendText(append(wire.Bytes(), 0), "traceparent"), unsafeString(c.traceparent))
	b.Run("weft", func(b *testing.B) {
		d := newDecoder()
		if err := d.decode(warmup); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if err := d.decode(block); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("xnet", func(b *testing.B) {
		var fields []hpack.HeaderField
		d := hpack.NewDecoder(DefaultTableSize, func(f hpack.HeaderField) { fields = append(fields, f) })
		if _, err := d.Write(warmup); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			fields = fields[:0]
			if _, err := d.Write(block); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkEncodeRequest encodes requests that each have a different traceparent. x/net's encoder
// retains field values, so a proxy must copy the strings that share its read buffer: only
// traceparent, or all of them if it does not know which fields are already in the table.
func BenchmarkEncodeRequest(b *testing.B) {
	b.Run("weft", func(b *testing.B) {
		c := newGRPCCall()
		list := c.fields()
		e := &encoder{max: DefaultTableSize}
		var dst []byte
		b.ReportAllocs()
		for b.Loop() {
			c.changeTraceparent()
			dst = dst[:0]
			for i := range list {
				dst = e.appendField(dst, uint32(staticNameIndex(list[i].Name)), list[i].Name, list[i].Value)
			}
		}
	})
	for _, cloneAll := range []bool{false, true} {
		name := map[bool]string{false: "xnet-copy-new-fields", true: "xnet-copy-all-fields"}[cloneAll]
		b.Run(name, func(b *testing.B) {
			c := newGRPCCall()
			list := c.fields()
			var wire bytes.Buffer
			e := hpack.NewEncoder(&wire)
			b.ReportAllocs()
			for b.Loop() {
				c.changeTraceparent()
				wire.Reset()
				for _, f := range list {
					if cloneAll || f.Name == "traceparent" {
						f.Value = strings.Clone(f.Value)
					}
					if err := e.WriteField(f); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkUnaryBlocks encodes and decodes the three header blocks of a call.
func BenchmarkUnaryBlocks(b *testing.B) {
	responses := [][]hpack.HeaderField{
		{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/grpc"}},
		{{Name: "grpc-status", Value: "0"}},
	}
	b.Run("weft", func(b *testing.B) {
		c := newGRPCCall()
		list := c.fields()
		var e [2]encoder
		var d [2]*decoder
		for i := range e {
			e[i].max = DefaultTableSize
			d[i] = newDecoder()
		}
		var dst []byte
		roundTrip := func(side int, list []hpack.HeaderField) {
			dst = dst[:0]
			for i := range list {
				dst = e[side].appendField(dst, uint32(staticNameIndex(list[i].Name)), list[i].Name, list[i].Value)
			}
			if err := d[side].decode(dst); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportAllocs()
		for b.Loop() {
			c.changeTraceparent()
			roundTrip(0, list)
			for _, list := range responses {
				roundTrip(1, list)
			}
		}
	})
	b.Run("xnet", func(b *testing.B) {
		c := newGRPCCall()
		list := c.fields()
		var wire bytes.Buffer
		var fields []hpack.HeaderField
		var e [2]*hpack.Encoder
		var d [2]*hpack.Decoder
		for i := range e {
			e[i] = hpack.NewEncoder(&wire)
			d[i] = hpack.NewDecoder(DefaultTableSize, func(f hpack.HeaderField) { fields = append(fields, f) })
		}
		roundTrip := func(side int, list []hpack.HeaderField) {
			wire.Reset()
			for _, f := range list {
				if f.Name == "traceparent" {
					f.Value = strings.Clone(f.Value)
				}
				if err := e[side].WriteField(f); err != nil {
					b.Fatal(err)
				}
			}
			fields = fields[:0]
			if _, err := d[side].Write(wire.Bytes()); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportAllocs()
		for b.Loop() {
			c.changeTraceparent()
			roundTrip(0, list)
			for _, list := range responses {
				roundTrip(1, list)
			}
		}
	})
}

// BenchmarkEncodeResponse encodes the head and the trailers of a response.
func BenchmarkEncodeResponse(b *testing.B) {
	p, c := newBenchPair(b), newGRPCCall()
	var dst []byte
	st := &Stream{ID: 1}
	b.ReportAllocs()
	for b.Loop() {
		*st = Stream{ID: 1, state: Open}
		var err error
		if dst, err = p.server.AppendResponse(dst[:0], st, &c.resp, ResponseOptions{Server: "weft"}); err != nil {
			b.Fatal(err)
		}
		if dst, err = p.server.AppendTrailer(dst, st, &c.trailer); err != nil {
			b.Fatal(err)
		}
	}
}
