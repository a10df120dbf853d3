package codectest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol/codectest/example"
)

// faultyCodec is the example codec with a defect. A function that is set changes the result of the
// method with the same name. errorResponse belongs to AppendErrorResponse, changeControlFrame to
// the heartbeat and GOAWAY methods.
type faultyCodec struct {
	example.Codec
	traits             func() *xprotocol.Traits
	match              func(b []byte, v xprotocol.MatchResult) xprotocol.MatchResult
	parseFrame         func(b []byte, f xprotocol.Frame, err error) (xprotocol.Frame, error)
	setID              func(frame []byte)
	readRequest        func(frame []byte, r *protocol.Request, v *xprotocol.FrameView, err error) error
	readResponse       func(frame []byte, r *protocol.Response, v *xprotocol.FrameView, err error) error
	appendRequest      func(out, frame []byte, h *protocol.Header, remaining time.Duration) ([]byte, error)
	appendResponse     func(out, frame []byte) []byte
	errorResponse      func(out []byte) []byte
	changeControlFrame func(out []byte) []byte
}

func (c faultyCodec) Traits() *xprotocol.Traits {
	if c.traits == nil {
		return c.Codec.Traits()
	}
	return c.traits()
}

func (c faultyCodec) Match(b []byte) xprotocol.MatchResult {
	v := c.Codec.Match(b)
	if c.match == nil {
		return v
	}
	return c.match(b, v)
}

func (c faultyCodec) ParseFrame(b []byte) (xprotocol.Frame, error) {
	f, err := c.Codec.ParseFrame(b)
	if c.parseFrame == nil {
		return f, err
	}
	return c.parseFrame(b, f, err)
}

func (c faultyCodec) SetID(frame []byte, id uint64) {
	c.Codec.SetID(frame, id)
	if c.setID != nil {
		c.setID(frame)
	}
}

func (c faultyCodec) ReadRequest(frame []byte, r *protocol.Request, v *xprotocol.FrameView) error {
	err := c.Codec.ReadRequest(frame, r, v)
	if c.readRequest == nil {
		return err
	}
	return c.readRequest(frame, r, v, err)
}

func (c faultyCodec) ReadResponse(frame []byte, r *protocol.Response, v *xprotocol.FrameView) error {
	err := c.Codec.ReadResponse(frame, r, v)
	if c.readResponse == nil {
		return err
	}
	return c.readResponse(frame, r, v, err)
}

func (c faultyCodec) AppendRequest(dst, frame []byte, r *protocol.Request, v *xprotocol.FrameView, remaining time.Duration) ([]byte, error) {
	out, err := c.Codec.AppendRequest(dst, frame, r, v, remaining)
	if c.appendRequest == nil {
		return out, err
	}
	return c.appendRequest(out, frame, &r.Header, remaining)
}

func (c faultyCodec) AppendResponse(dst, frame []byte, r *protocol.Response, v *xprotocol.FrameView) ([]byte, error) {
	out, err := c.Codec.AppendResponse(dst, frame, r, v)
	if c.appendResponse == nil {
		return out, err
	}
	return c.appendResponse(out, frame), err
}

func (c faultyCodec) AppendErrorResponse(dst, frame []byte, reason protocol.Reason, text string) []byte {
	out := c.Codec.AppendErrorResponse(dst, frame, reason, text)
	if c.errorResponse == nil {
		return out
	}
	return c.errorResponse(out)
}

func (c faultyCodec) AppendHeartbeat(dst []byte, id uint64) []byte {
	return c.controlFrame(c.Codec.AppendHeartbeat(dst, id))
}
func (c faultyCodec) AppendHeartbeatAck(dst, ping []byte) []byte {
	return c.controlFrame(c.Codec.AppendHeartbeatAck(dst, ping))
}
func (c faultyCodec) AppendGoAway(dst []byte, id uint64) []byte {
	return c.controlFrame(c.Codec.AppendGoAway(dst, id))
}

func (c faultyCodec) controlFrame(out []byte) []byte {
	if c.changeControlFrame == nil {
		return out
	}
	return c.changeControlFrame(out)
}

// defect is a faulty codec and the check that must find the defect.
type defect struct {
	name  string
	codec faultyCodec
	check string
}

// flip returns a function that changes the byte at index i after bufferPrefix.
func flip(i int) func(out []byte) []byte {
	return func(out []byte) []byte { out[len(bufferPrefix)+i] ^= 1; return out }
}

func framingDefects() []defect {
	const matched, rejected, split, declared, id = "first bytes match", "foreign bytes are rejected", "a frame parses the same at every split", "the size is the declared size", "only the id changes with the id"
	return []defect{
		{"Traits returns a new pointer", faultyCodec{traits: func() *xprotocol.Traits { t := *example.Codec{}.Traits(); return &t }}, "the suite is complete"},
		{"Traits without a name", faultyCodec{traits: func() func() *xprotocol.Traits {
			t := *example.Codec{}.Traits()
			t.Name = ""
			return func() *xprotocol.Traits { return &t }
		}()}, "the suite is complete"},
		{"Match always returns yes", faultyCodec{match: func([]byte, xprotocol.MatchResult) xprotocol.MatchResult { return xprotocol.MatchYes }}, matched},
		{"Match always returns need more", faultyCodec{match: func([]byte, xprotocol.MatchResult) xprotocol.MatchResult { return xprotocol.MatchNeedMore }}, matched},
		{"Match changes its result", faultyCodec{match: func(b []byte, v xprotocol.MatchResult) xprotocol.MatchResult {
			if len(b) == 1 {
				return xprotocol.MatchNo
			}
			return v
		}}, matched},
		{"Match returns an invalid result", faultyCodec{match: func([]byte, xprotocol.MatchResult) xprotocol.MatchResult { return 9 }}, matched},
		{"Match accepts any bytes", faultyCodec{match: func(b []byte, _ xprotocol.MatchResult) xprotocol.MatchResult {
			if len(b) < 2 {
				return xprotocol.MatchNeedMore
			}
			return xprotocol.MatchYes
		}}, rejected},
		{"ParseFrame accepts other bytes", faultyCodec{parseFrame: func(_ []byte, f xprotocol.Frame, _ error) (xprotocol.Frame, error) { return f, nil }}, rejected},
		{"an error for an incomplete frame", faultyCodec{parseFrame: func(b []byte, f xprotocol.Frame, err error) (xprotocol.Frame, error) {
			if len(b) < 20 {
				err = errors.New("too short")
			}
			return f, err
		}}, split},
		{"the size is limited to the available bytes", faultyCodec{parseFrame: func(b []byte, f xprotocol.Frame, err error) (xprotocol.Frame, error) {
			f.Size = min(f.Size, len(b))
			return f, err
		}}, split},
		{"the size is determined late", faultyCodec{parseFrame: func(b []byte, f xprotocol.Frame, err error) (xprotocol.Frame, error) {
			if len(b) < 24 {
				f = xprotocol.Frame{}
			}
			return f, err
		}}, split},
		{"the size includes the next bytes", faultyCodec{parseFrame: func(b []byte, f xprotocol.Frame, err error) (xprotocol.Frame, error) {
			if f.Size > 0 && len(b) > f.Size {
				f.Size = len(b)
			}
			return f, err
		}}, split},
		{"ParseFrame limits the size", faultyCodec{parseFrame: func(_ []byte, f xprotocol.Frame, err error) (xprotocol.Frame, error) {
			f.Size = min(f.Size, 1<<20)
			return f, err
		}}, declared},
		{"SetID changes another byte", faultyCodec{setID: func(frame []byte) { frame[3]++ }}, id},
		{"SetID truncates the id", faultyCodec{setID: func(frame []byte) { frame[4] = 0 }}, id},
		{"SetID panics", faultyCodec{setID: func(frame []byte) { _ = frame[1<<20] }}, id},
	}
}

func readingDefects() []defect {
	const views, filled, damage = "frames parse", "reading sets the fields that engines use", "truncated and malformed frames are errors"
	request := func(f func(r *protocol.Request, v *xprotocol.FrameView)) faultyCodec {
		return faultyCodec{readRequest: func(_ []byte, r *protocol.Request, v *xprotocol.FrameView, err error) error {
			f(r, v)
			return err
		}}
	}
	return []defect{
		{"a field is lost", request(func(r *protocol.Request, _ *xprotocol.FrameView) { r.Header.Del("k"); r.Header.MarkUnchanged() }), views},
		{"a response's field is lost", faultyCodec{readResponse: func(_ []byte, r *protocol.Response, _ *xprotocol.FrameView, err error) error {
			r.Header.Del("k")
			r.Header.MarkUnchanged()
			return err
		}}, views},
		{"no authority", request(func(r *protocol.Request, _ *xprotocol.FrameView) { r.Authority = "" }), views},
		{"no timeout", request(func(_ *protocol.Request, v *xprotocol.FrameView) { v.Timeout = 0 }), views},
		{"a valid request is rejected", faultyCodec{readRequest: func([]byte, *protocol.Request, *xprotocol.FrameView, error) error { return errors.New("no") }}, views},
		{"a header that is marked as changed", request(func(r *protocol.Request, _ *xprotocol.FrameView) { r.Header.Del("k") }), filled},
		{"OneWay is not set", request(func(r *protocol.Request, _ *xprotocol.FrameView) { r.OneWay = false }), filled},
		{"an invalid path", request(func(r *protocol.Request, _ *xprotocol.FrameView) { r.Path = "S.m" }), filled},
		{"routing fields come last", request(func(r *protocol.Request, _ *xprotocol.FrameView) {
			r.Header.Del("service")
			r.Header.Add("service", "S")
			r.Header.MarkUnchanged()
		}), filled},
		{"wrong content length", request(func(r *protocol.Request, _ *xprotocol.FrameView) { r.ContentLength = 1 }), filled},
		{"content outside of the frame", request(func(_ *protocol.Request, v *xprotocol.FrameView) { v.ContentOffset = 1 << 20 }), filled},
		{"negative timeout", request(func(_ *protocol.Request, v *xprotocol.FrameView) { v.Timeout = -1 }), filled},
		{"state of previous frames", request(func() func(r *protocol.Request, _ *xprotocol.FrameView) {
			n := 0
			return func(r *protocol.Request, _ *xprotocol.FrameView) { n++; r.Serialization = strconv.Itoa(n) }
		}()), filled},
		{"an error that is not a Fault", faultyCodec{readRequest: func(_ []byte, _ *protocol.Request, _ *xprotocol.FrameView, err error) error {
			if err != nil {
				return errors.New("no")
			}
			return nil
		}}, damage},
		{"wrong reason for a response", faultyCodec{readResponse: func(_ []byte, _ *protocol.Response, _ *xprotocol.FrameView, err error) error {
			if err != nil {
				return protocol.NewFault(protocol.MalformedRequest, err)
			}
			return nil
		}}, damage},
		{"a panic for a truncated frame", faultyCodec{readRequest: func(frame []byte, _ *protocol.Request, _ *xprotocol.FrameView, err error) error {
			_ = frame[40]
			return err
		}}, damage},
	}
}

func appendingDefects() []defect {
	const unchanged, requests, responses, routing, timeouts = "unchanged frames are forwarded unchanged", "changed requests arrive", "changed responses arrive", "routing fields arrive", "timeouts are lowered and never raised"
	request := func(f func(out, frame []byte, h *protocol.Header, remaining time.Duration) []byte) faultyCodec {
		return faultyCodec{appendRequest: func(out, frame []byte, h *protocol.Header, remaining time.Duration) ([]byte, error) {
			return f(out, frame, h, remaining), nil
		}}
	}
	return []defect{
		{"an unchanged request is changed", request(func(out, _ []byte, _ *protocol.Header, _ time.Duration) []byte { return flip(7)(out) }), unchanged},
		{"an unchanged response is changed", faultyCodec{appendResponse: func(out, _ []byte) []byte { return flip(7)(out) }}, unchanged},
		{"previous bytes of the buffer are lost", request(func(out, _ []byte, _ *protocol.Header, _ time.Duration) []byte { return out[1:] }), unchanged},
		{"changes are ignored", request(func(_, frame []byte, _ *protocol.Header, _ time.Duration) []byte {
			return append([]byte(bufferPrefix), frame...)
		}), requests},
		{"changes of responses are ignored", faultyCodec{appendResponse: func(_, frame []byte) []byte { return append([]byte(bufferPrefix), frame...) }}, responses},
		{"ASCII only", request(func(out, _ []byte, _ *protocol.Header, _ time.Duration) []byte {
			return bytes.ReplaceAll(out, []byte("ü"), []byte("??"))
		}), requests},
		{"the content changes with the fields", request(func(out, _ []byte, h *protocol.Header, _ time.Duration) []byte {
			if h.Changed() {
				out[len(out)-1] ^= 1
			}
			return out
		}), requests},
		{"a changed frame has another id", request(func(out, _ []byte, h *protocol.Header, _ time.Duration) []byte {
			if h.Changed() {
				return flip(7)(out)
			}
			return out
		}), requests},
		{"a changed frame is too long", request(func(out, _ []byte, h *protocol.Header, _ time.Duration) []byte {
			if h.Changed() {
				return append(out, 0)
			}
			return out
		}), requests},
		{"a change returns an error", faultyCodec{appendRequest: func(out, _ []byte, h *protocol.Header, _ time.Duration) ([]byte, error) {
			if h.Changed() {
				return out, errors.New("no")
			}
			return out, nil
		}}, requests},
		{"the group is not written", request(func(out, frame []byte, h *protocol.Header, _ time.Duration) []byte {
			if h.Get("group") != "g" {
				return append([]byte(bufferPrefix), frame...)
			}
			return out
		}), routing},
		{"a timeout is raised", request(func(out, _ []byte, _ *protocol.Header, remaining time.Duration) []byte {
			if remaining > 0 {
				binary.BigEndian.PutUint32(out[len(bufferPrefix)+8:], uint32(remaining.Milliseconds())+1)
			}
			return out
		}), timeouts},
		{"a timeout is not lowered", request(func(out, frame []byte, _ *protocol.Header, _ time.Duration) []byte {
			copy(out[len(bufferPrefix)+8:len(bufferPrefix)+12], frame[8:])
			return out
		}), timeouts},
		{"a remaining time below 1 ms means no timeout", request(func(out, _ []byte, _ *protocol.Header, remaining time.Duration) []byte {
			if remaining == 1 {
				clear(out[len(bufferPrefix)+8 : len(bufferPrefix)+12])
			}
			return out
		}), timeouts},
	}
}

func controlFrameDefects() []defect {
	const errorResponses, heartbeats, goAways, allocs = "error responses express the reason", "heartbeats are acknowledged", "GOAWAY is recognized", "the hot path does not allocate"
	return []defect{
		{"an error response with another id", faultyCodec{errorResponse: flip(7)}, errorResponses},
		{"an error response with another code", faultyCodec{errorResponse: flip(3)}, errorResponses},
		{"an error response that is a request", faultyCodec{errorResponse: func(out []byte) []byte { out[len(bufferPrefix)+2] = '?'; return out }}, errorResponses},
		{"an error response without its text", faultyCodec{errorResponse: func(out []byte) []byte { return bytes.ReplaceAll(out, []byte("ô"), []byte("??")) }}, errorResponses},
		{"an error response replaces the previous bytes", faultyCodec{errorResponse: func(out []byte) []byte { return out[len(bufferPrefix):] }}, errorResponses},
		{"an acknowledgement with another id", faultyCodec{changeControlFrame: flip(7)}, heartbeats},
		{"an invalid heartbeat", faultyCodec{changeControlFrame: flip(2)}, heartbeats},
		{"an invalid GOAWAY", faultyCodec{changeControlFrame: flip(2)}, goAways},
		{"ParseFrame allocates", faultyCodec{parseFrame: func(b []byte, f xprotocol.Frame, err error) (xprotocol.Frame, error) {
			_ = fmt.Sprint(len(b))
			return f, err
		}}, allocs},
		{"ReadRequest allocates", faultyCodec{readRequest: func(_ []byte, r *protocol.Request, _ *xprotocol.FrameView, err error) error {
			r.Path = strings.Clone(r.Path)
			return err
		}}, allocs},
	}
}
