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

// broken is the codec of the example with a defect. A function that is set replaces a method; it gets
// the result of that method.
type broken struct {
	example.Codec
	traits         func() *xprotocol.Traits
	match          func(b []byte, v xprotocol.MatchResult) xprotocol.MatchResult
	next           func(b []byte, f xprotocol.Frame, err error) (xprotocol.Frame, error)
	setID          func(frame []byte)
	readRequest    func(frame []byte, r *protocol.Request, v *xprotocol.FrameView, err error) error
	readResponse   func(frame []byte, r *protocol.Response, v *xprotocol.FrameView, err error) error
	appendRequest  func(out, frame []byte, h *protocol.Header, left time.Duration) ([]byte, error)
	appendResponse func(out, frame []byte) []byte
	fault          func(out []byte) []byte
	signal         func(out []byte) []byte
}

func (c broken) Traits() *xprotocol.Traits {
	if c.traits == nil {
		return c.Codec.Traits()
	}
	return c.traits()
}

func (c broken) Match(b []byte) xprotocol.MatchResult {
	v := c.Codec.Match(b)
	if c.match == nil {
		return v
	}
	return c.match(b, v)
}

func (c broken) ParseFrame(b []byte) (xprotocol.Frame, error) {
	f, err := c.Codec.ParseFrame(b)
	if c.next == nil {
		return f, err
	}
	return c.next(b, f, err)
}

func (c broken) SetID(frame []byte, id uint64) {
	c.Codec.SetID(frame, id)
	if c.setID != nil {
		c.setID(frame)
	}
}

func (c broken) ReadRequest(frame []byte, r *protocol.Request, v *xprotocol.FrameView) error {
	err := c.Codec.ReadRequest(frame, r, v)
	if c.readRequest == nil {
		return err
	}
	return c.readRequest(frame, r, v, err)
}

func (c broken) ReadResponse(frame []byte, r *protocol.Response, v *xprotocol.FrameView) error {
	err := c.Codec.ReadResponse(frame, r, v)
	if c.readResponse == nil {
		return err
	}
	return c.readResponse(frame, r, v, err)
}

func (c broken) AppendRequest(dst, frame []byte, r *protocol.Request, v *xprotocol.FrameView, left time.Duration) ([]byte, error) {
	out, err := c.Codec.AppendRequest(dst, frame, r, v, left)
	if c.appendRequest == nil {
		return out, err
	}
	return c.appendRequest(out, frame, &r.Header, left)
}

func (c broken) AppendResponse(dst, frame []byte, r *protocol.Response, v *xprotocol.FrameView) ([]byte, error) {
	out, err := c.Codec.AppendResponse(dst, frame, r, v)
	if c.appendResponse == nil {
		return out, err
	}
	return c.appendResponse(out, frame), err
}

func (c broken) AppendErrorResponse(dst, frame []byte, reason protocol.Reason, text string) []byte {
	out := c.Codec.AppendErrorResponse(dst, frame, reason, text)
	if c.fault == nil {
		return out
	}
	return c.fault(out)
}

func (c broken) AppendHeartbeat(dst []byte, id uint64) []byte {
	return c.signals(c.Codec.AppendHeartbeat(dst, id))
}
func (c broken) AppendHeartbeatAck(dst, ping []byte) []byte {
	return c.signals(c.Codec.AppendHeartbeatAck(dst, ping))
}
func (c broken) AppendGoAway(dst []byte, id uint64) []byte {
	return c.signals(c.Codec.AppendGoAway(dst, id))
}

func (c broken) signals(out []byte) []byte {
	if c.signal == nil {
		return out
	}
	return c.signal(out)
}

// defect is a broken codec and the check that must find it.
type defect struct {
	name  string
	codec broken
	check string
}

// flip returns a function that changes the byte at index i after before.
func flip(i int) func(out []byte) []byte {
	return func(out []byte) []byte { out[len(before)+i] ^= 1; return out }
}

func framingDefects() []defect {
	const matched, refused, split, declared, id = "first bytes match", "foreign bytes are rejected", "a frame parses the same at every split", "the size is the declared size", "only the id changes with the id"
	return []defect{
		{"Traits are made anew", broken{traits: func() *xprotocol.Traits { t := *example.Codec{}.Traits(); return &t }}, "the suite is complete"},
		{"Traits without a name", broken{traits: func() func() *xprotocol.Traits {
			t := *example.Codec{}.Traits()
			t.Name = ""
			return func() *xprotocol.Traits { return &t }
		}()}, "the suite is complete"},
		{"sure of nothing", broken{match: func([]byte, xprotocol.MatchResult) xprotocol.MatchResult { return xprotocol.MatchYes }}, matched},
		{"never sure", broken{match: func([]byte, xprotocol.MatchResult) xprotocol.MatchResult { return xprotocol.MatchNeedMore }}, matched},
		{"changes its mind", broken{match: func(b []byte, v xprotocol.MatchResult) xprotocol.MatchResult {
			if len(b) == 1 {
				return xprotocol.MatchNo
			}
			return v
		}}, matched},
		{"a fourth verdict", broken{match: func([]byte, xprotocol.MatchResult) xprotocol.MatchResult { return 9 }}, matched},
		{"takes whatever comes", broken{match: func(b []byte, _ xprotocol.MatchResult) xprotocol.MatchResult {
			if len(b) < 2 {
				return xprotocol.MatchNeedMore
			}
			return xprotocol.MatchYes
		}}, refused},
		{"waits for the end of garbage", broken{next: func(_ []byte, f xprotocol.Frame, _ error) (xprotocol.Frame, error) { return f, nil }}, refused},
		{"an error where bytes are missing", broken{next: func(b []byte, f xprotocol.Frame, err error) (xprotocol.Frame, error) {
			if len(b) < 20 {
				err = errors.New("too short")
			}
			return f, err
		}}, split},
		{"the size of what is there", broken{next: func(b []byte, f xprotocol.Frame, err error) (xprotocol.Frame, error) {
			f.Size = min(f.Size, len(b))
			return f, err
		}}, split},
		{"a size that is known late", broken{next: func(b []byte, f xprotocol.Frame, err error) (xprotocol.Frame, error) {
			if len(b) < 24 {
				f = xprotocol.Frame{}
			}
			return f, err
		}}, split},
		{"takes what follows for its own", broken{next: func(b []byte, f xprotocol.Frame, err error) (xprotocol.Frame, error) {
			if f.Size > 0 && len(b) > f.Size {
				f.Size = len(b)
			}
			return f, err
		}}, split},
		{"a limit of its own", broken{next: func(_ []byte, f xprotocol.Frame, err error) (xprotocol.Frame, error) {
			f.Size = min(f.Size, 1<<20)
			return f, err
		}}, declared},
		{"SetID sets more", broken{setID: func(frame []byte) { frame[3]++ }}, id},
		{"SetID sets less", broken{setID: func(frame []byte) { frame[4] = 0 }}, id},
		{"SetID panics", broken{setID: func(frame []byte) { _ = frame[1<<20] }}, id},
	}
}

func readingDefects() []defect {
	const views, filled, damage = "frames parse", "reading sets the fields that engines use", "truncated and malformed frames are errors"
	request := func(f func(r *protocol.Request, v *xprotocol.FrameView)) broken {
		return broken{readRequest: func(_ []byte, r *protocol.Request, v *xprotocol.FrameView, err error) error {
			f(r, v)
			return err
		}}
	}
	return []defect{
		{"a field is lost", request(func(r *protocol.Request, _ *xprotocol.FrameView) { r.Header.Del("k"); r.Header.MarkUnchanged() }), views},
		{"an answer's field is lost", broken{readResponse: func(_ []byte, r *protocol.Response, _ *xprotocol.FrameView, err error) error {
			r.Header.Del("k")
			r.Header.MarkUnchanged()
			return err
		}}, views},
		{"no authority", request(func(r *protocol.Request, _ *xprotocol.FrameView) { r.Authority = "" }), views},
		{"no timeout", request(func(_ *protocol.Request, v *xprotocol.FrameView) { v.Timeout = 0 }), views},
		{"a request is refused", broken{readRequest: func([]byte, *protocol.Request, *xprotocol.FrameView, error) error { return errors.New("no") }}, views},
		{"a header that is not sealed", request(func(r *protocol.Request, _ *xprotocol.FrameView) { r.Header.Del("k") }), filled},
		{"one-way is forgotten", request(func(r *protocol.Request, _ *xprotocol.FrameView) { r.OneWay = false }), filled},
		{"an invalid path", request(func(r *protocol.Request, _ *xprotocol.FrameView) { r.Path = "S.m" }), filled},
		{"routing fields come last", request(func(r *protocol.Request, _ *xprotocol.FrameView) {
			r.Header.Del("service")
			r.Header.Add("service", "S")
			r.Header.MarkUnchanged()
		}), filled},
		{"a length that is not the content's", request(func(r *protocol.Request, _ *xprotocol.FrameView) { r.ContentLength = 1 }), filled},
		{"content outside of the frame", request(func(_ *protocol.Request, v *xprotocol.FrameView) { v.ContentOffset = 1 << 20 }), filled},
		{"less than no time", request(func(_ *protocol.Request, v *xprotocol.FrameView) { v.Timeout = -1 }), filled},
		{"a memory of the frames before", request(func() func(r *protocol.Request, _ *xprotocol.FrameView) {
			n := 0
			return func(r *protocol.Request, _ *xprotocol.FrameView) { n++; r.Serialization = strconv.Itoa(n) }
		}()), filled},
		{"an error that is not a Fault", broken{readRequest: func(_ []byte, _ *protocol.Request, _ *xprotocol.FrameView, err error) error {
			if err != nil {
				return errors.New("no")
			}
			return nil
		}}, damage},
		{"the request's reason for an answer", broken{readResponse: func(_ []byte, _ *protocol.Response, _ *xprotocol.FrameView, err error) error {
			if err != nil {
				return protocol.NewFault(protocol.MalformedRequest, err)
			}
			return nil
		}}, damage},
		{"a panic where bytes are missing", broken{readRequest: func(frame []byte, _ *protocol.Request, _ *xprotocol.FrameView, err error) error {
			_ = frame[40]
			return err
		}}, damage},
	}
}

func appendingDefects() []defect {
	const untouched, requests, answers, routing, timeouts = "unchanged frames are forwarded unchanged", "changed requests arrive", "changed responses arrive", "routing fields arrive", "timeouts are lowered and never raised"
	request := func(f func(out, frame []byte, h *protocol.Header, left time.Duration) []byte) broken {
		return broken{appendRequest: func(out, frame []byte, h *protocol.Header, left time.Duration) ([]byte, error) {
			return f(out, frame, h, left), nil
		}}
	}
	return []defect{
		{"an untouched request is another", request(func(out, _ []byte, _ *protocol.Header, _ time.Duration) []byte { return flip(7)(out) }), untouched},
		{"an untouched answer is another", broken{appendResponse: func(out, _ []byte) []byte { return flip(7)(out) }}, untouched},
		{"what was in the buffer is lost", request(func(out, _ []byte, _ *protocol.Header, _ time.Duration) []byte { return out[1:] }), untouched},
		{"changes are ignored", request(func(_, frame []byte, _ *protocol.Header, _ time.Duration) []byte {
			return append([]byte(before), frame...)
		}), requests},
		{"changes of answers are ignored", broken{appendResponse: func(_, frame []byte) []byte { return append([]byte(before), frame...) }}, answers},
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
		{"a change is an error", broken{appendRequest: func(out, _ []byte, h *protocol.Header, _ time.Duration) ([]byte, error) {
			if h.Changed() {
				return out, errors.New("no")
			}
			return out, nil
		}}, requests},
		{"the group is not written", request(func(out, frame []byte, h *protocol.Header, _ time.Duration) []byte {
			if h.Get("group") != "g" {
				return append([]byte(before), frame...)
			}
			return out
		}), routing},
		{"a timeout is raised", request(func(out, _ []byte, _ *protocol.Header, left time.Duration) []byte {
			if left > 0 {
				binary.BigEndian.PutUint32(out[len(before)+8:], uint32(left.Milliseconds())+1)
			}
			return out
		}), timeouts},
		{"a timeout is not lowered", request(func(out, frame []byte, _ *protocol.Header, _ time.Duration) []byte {
			copy(out[len(before)+8:len(before)+12], frame[8:])
			return out
		}), timeouts},
		{"no time left is for ever", request(func(out, _ []byte, _ *protocol.Header, left time.Duration) []byte {
			if left == 1 {
				clear(out[len(before)+8 : len(before)+12])
			}
			return out
		}), timeouts},
	}
}

func signalDefects() []defect {
	const faults, pings, goodbyes, still = "faults become responses", "heartbeats are acknowledged", "GOAWAY is recognized", "the hot path does not allocate"
	return []defect{
		{"a fault with another id", broken{fault: flip(7)}, faults},
		{"a fault with another code", broken{fault: flip(3)}, faults},
		{"a fault that is a request", broken{fault: func(out []byte) []byte { out[len(before)+2] = '?'; return out }}, faults},
		{"a fault without its text", broken{fault: func(out []byte) []byte { return bytes.ReplaceAll(out, []byte("ô"), []byte("??")) }}, faults},
		{"a fault in the place of what was there", broken{fault: func(out []byte) []byte { return out[len(before):] }}, faults},
		{"a pong with another id", broken{signal: flip(7)}, pings},
		{"an invalid heartbeat", broken{signal: flip(2)}, pings},
		{"an invalid GOAWAY", broken{signal: flip(2)}, goodbyes},
		{"Next allocates", broken{next: func(b []byte, f xprotocol.Frame, err error) (xprotocol.Frame, error) {
			_ = fmt.Sprint(len(b))
			return f, err
		}}, still},
		{"ReadRequest allocates", broken{readRequest: func(_ []byte, r *protocol.Request, _ *xprotocol.FrameView, err error) error {
			r.Path = strings.Clone(r.Path)
			return err
		}}, still},
	}
}
