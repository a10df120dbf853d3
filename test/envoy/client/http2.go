package client

import (
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"

	"github.com/weft-proxy/weft/test/envoy/wire"
)

// maxImmediateBody is the size of a body that the client can send without credit from the proxy.
const maxImmediateBody = 16 << 10

func runHTTP2(conn net.Conn, s *Script, id string, begin, deadline time.Time) Outcome {
	out := Outcome{}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return Outcome{Closed: true}
	}
	x := &exchange{frames: wire.NewHTTP2(conn), out: &out}
	if err := x.frames.Settings(http2.Setting{ID: http2.SettingEnablePush, Val: 0}); err != nil {
		return Outcome{Closed: true}
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return Outcome{Closed: true}
	}
	// A body above the window of the proxy is sent while the response is read.
	var senders sync.WaitGroup
	defer senders.Wait()
	defer x.frames.Close()
	for i := range s.repeat() {
		stream := uint32(2*i + 1) //nolint:gosec // few requests
		x.stream = stream
		if len(s.Body) > maxImmediateBody {
			senders.Go(func() { _ = x.send(s, stream, id) }) // the response shows a failure
		} else {
			_ = x.send(s, stream, id)
		}
		out.Responses = append(out.Responses, x.response())
		if x.ended {
			break
		}
	}
	out.Elapsed = time.Since(begin)
	if !x.ended && conn.SetDeadline(time.Now().Add(s.closeWait(nil))) == nil {
		x.stream = 0
		x.response()
	}
	return out
}

// exchange is a request and its response on a connection.
type exchange struct {
	frames *wire.HTTP2
	out    *Outcome
	stream uint32
	ended  bool // no more frames can be read
}

func (x *exchange) send(s *Script, stream uint32, id string) error {
	fields := []wire.Field{
		{Name: ":method", Value: s.Method}, {Name: ":scheme", Value: s.Scheme},
		{Name: ":path", Value: s.Path}, {Name: ":authority", Value: s.Host},
	}
	fields = append(fields, s.Fields...)
	fields = append(fields, wire.Field{Name: strings.ToLower(wire.CaseField), Value: id})
	hasTrailers := len(s.Trailers) > 0
	if err := x.frames.Headers(stream, fields, s.Body == nil && !hasTrailers); err != nil {
		return err
	}
	if s.Body != nil {
		if err := x.frames.Data(stream, s.Body, !hasTrailers); err != nil {
			return err
		}
	}
	if !hasTrailers {
		return nil
	}
	return x.frames.Headers(stream, s.Trailers, true)
}

// response reads frames until the stream ends.
func (x *exchange) response() Response {
	r := Response{Missing: true}
	for {
		event, err := x.frames.Read()
		if err != nil {
			x.end(&r, err)
			return r
		}
		if event.GoAway != nil {
			x.out.GoAway = strconv.Itoa(int(*event.GoAway))
		}
		if event.Stream != x.stream || event.GoAway != nil {
			continue
		}
		if event.Reset != nil {
			r.Reset = strconv.Itoa(int(*event.Reset))
			return r
		}
		if event.Fields != nil {
			x.fields(&r, event.Fields)
		}
		r.Body = append(r.Body, event.Data...)
		if event.End {
			return r
		}
	}
}

// fields adds a header block to a response: an informational head, the head, or trailers.
func (x *exchange) fields(r *Response, fields []wire.Field) {
	if !r.Missing {
		r.Trailers = fields
		return
	}
	status, _ := wire.Get(fields, ":status")
	number, err := strconv.Atoi(status)
	if err != nil {
		return
	}
	rest := []wire.Field{}
	for _, f := range fields {
		if f.Name != ":status" {
			rest = append(rest, f)
		}
	}
	if number < 200 {
		x.out.Responses = append(x.out.Responses, Response{Status: number, Fields: rest})
		return
	}
	r.Missing, r.Status, r.Fields = false, number, rest
}

// end records why no more frames can be read.
func (x *exchange) end(r *Response, err error) {
	x.ended = true
	switch {
	case alertText(err) != "":
		x.out.Error, x.out.Closed = alertText(err), true
	case errors.Is(err, os.ErrDeadlineExceeded):
		r.TimedOut = r.Missing
		r.Cut = !r.Missing
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		x.out.Closed = true
		r.Cut = !r.Missing
	default:
		x.out.Error = "malformed HTTP/2"
	}
}
