package origin

import (
	"bufio"
	"encoding/binary"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/test/envoy/wire"
)

// request is a request on a stream. The goroutine that reads the connection owns it.
type request struct {
	record *Record
	d      directives
	method string
}

func (c *connection) serveHTTP2() {
	r := bufio.NewReader(c)
	head, err := wire.ReadHead(r)
	if err != nil || string(head) != http2Preface {
		return
	}
	c.serveFrames(r)
}

// serveFrames serves HTTP/2 after the first line of the client's preface.
func (c *connection) serveFrames(r *bufio.Reader) {
	if _, err := r.Discard(len(http2.ClientPreface) - len(http2Preface)); err != nil {
		return
	}
	frames := wire.NewHTTP2(struct {
		io.Reader
		io.Writer
	}{r, c})
	if err := frames.Settings(http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1}); err != nil {
		return
	}
	var responses sync.WaitGroup
	defer responses.Wait()
	defer func() { _ = c.Close() }() // ends responses that wait for credit
	streams := map[uint32]*request{}
	for {
		event, err := frames.Read()
		if err != nil {
			return
		}
		x := streams[event.Stream]
		switch {
		case event.GoAway != nil:
		case event.Reset != nil:
			delete(streams, event.Stream)
		case event.Fields != nil && x == nil:
			if x, err = c.begin(frames, event); err != nil {
				return
			}
			streams[event.Stream] = x
		case x == nil: // the rest of a stream that was reset
		case event.Fields != nil:
			c.set.update(func() { x.record.Trailers = event.Fields })
		default:
			c.set.update(func() { x.record.Body = append(x.record.Body, event.Data...) })
			if (x.method == "CONNECT" || x.d.stream) && len(event.Data) > 0 {
				if err := frames.Data(event.Stream, append([]byte("echo:"), event.Data...), false); err != nil {
					return
				}
			}
		}
		if event.End && x != nil {
			delete(streams, event.Stream)
			responses.Go(func() { x.finish(frames, event.Stream) })
		}
	}
}

// begin records a request.
func (c *connection) begin(frames *wire.HTTP2, event wire.Event) (*request, error) {
	method, _ := wire.Get(event.Fields, ":method")
	path, _ := wire.Get(event.Fields, ":path")
	x := &request{method: method, record: &Record{
		Origin: c.origin, Line: method + " " + path + " HTTP/2", Fields: event.Fields, Proxy: c.proxy, TLS: c.tls,
	}}
	var err error
	if x.d, err = parseDirectives(event.Fields, c.origin, c.set.record(x.record)); err != nil {
		return nil, err
	}
	if method == "CONNECT" {
		return x, frames.Headers(event.Stream, []wire.Field{{Name: ":status", Value: "200"}}, false)
	}
	if x.d.outcome == resetImmediately {
		return x, frames.Reset(event.Stream, http2.ErrCodeInternal)
	}
	if x.d.stream {
		return x, frames.Headers(event.Stream, x.head(), false)
	}
	return x, nil
}

// finish responds to a complete request. If it fails, the connection has ended, and its reader
// stops.
func (x *request) finish(frames *wire.HTTP2, stream uint32) {
	if x.method == "CONNECT" {
		_ = frames.Data(stream, nil, true)
		return
	}
	if x.d.malformed != "" {
		_ = sendMalformed(frames, stream, x.d.malformed)
		return
	}
	if x.d.stream {
		_ = frames.Headers(stream, x.trailers(), true)
		return
	}
	switch x.d.outcome {
	case resetConn, closeConn:
		code := http2.ErrCodeInternal
		if x.d.refused {
			code = http2.ErrCodeRefusedStream
		}
		_ = frames.Reset(stream, code)
	case hang, resetImmediately:
	case respond:
		time.Sleep(x.d.delay)
		_ = x.respond(frames, stream)
	}
}

func (x *request) isGRPC() bool {
	contentType, _ := wire.Get(x.record.Fields, "content-type")
	return strings.Contains(contentType, "grpc")
}

// head returns the fields of the response.
func (x *request) head() []wire.Field {
	head := []wire.Field{{Name: ":status", Value: strconv.Itoa(x.d.status)}}
	for _, f := range x.d.fields {
		head = append(head, wire.Field{Name: strings.ToLower(f.Name), Value: f.Value})
	}
	if _, found := wire.Get(head, "content-type"); found {
		return head
	}
	value := "text/plain"
	if x.isGRPC() {
		value = "application/grpc"
	}
	return append(head, wire.Field{Name: "content-type", Value: value})
}

// trailers returns the trailers of the response. Those of gRPC have a status.
func (x *request) trailers() []wire.Field {
	if _, found := wire.Get(x.d.trailers, "grpc-status"); found || !x.isGRPC() {
		return x.d.trailers
	}
	return append(x.d.trailers, wire.Field{Name: "grpc-status", Value: "0"})
}

func (x *request) respond(frames *wire.HTTP2, stream uint32) error {
	head := x.head()
	if x.isGRPC() && x.d.trailersOnly != "" {
		return frames.Headers(stream, append(head, wire.Field{Name: "grpc-status", Value: x.d.trailersOnly}), true)
	}
	hasNoBody := x.d.hasNoBody(x.method)
	if err := frames.Headers(stream, head, hasNoBody); err != nil || hasNoBody {
		return err
	}
	body, trailers := x.d.body, x.trailers()
	if x.isGRPC() {
		body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...) //nolint:gosec // at most x-o-len
	}
	if x.d.cut >= 0 {
		if err := frames.Data(stream, body[:min(x.d.cut, len(body))], false); err != nil {
			return err
		}
		return frames.Reset(stream, http2.ErrCodeInternal)
	}
	if err := frames.Data(stream, body, len(trailers) == 0); err != nil || len(trailers) == 0 {
		return err
	}
	return frames.Headers(stream, trailers, true)
}
