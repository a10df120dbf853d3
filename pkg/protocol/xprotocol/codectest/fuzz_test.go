package codectest

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol/codectest/example"
)

// TestInvariantsFindDefects verifies that Invariants finds each defect with a single frame.
func TestInvariantsFindDefects(t *testing.T) {
	good := memo('?', 3000, "hello", "service", "S", "method", "m", "k", "v")
	type frame = xprotocol.Frame
	for name, d := range map[string]struct {
		codec broken
		b     []byte
	}{
		"Match changes its mind": {broken{match: func(b []byte, v xprotocol.MatchResult) xprotocol.MatchResult {
			if len(b) > 40 {
				return xprotocol.MatchNo
			}
			return v
		}}, good},
		"an error with a size":     {broken{next: func(_ []byte, f frame, _ error) (frame, error) { return f, errors.New("no") }}, good},
		"a size that is not known": {broken{next: func([]byte, frame, error) (frame, error) { return frame{}, nil }}, good},
		"less than no size":        {broken{next: func([]byte, frame, error) (frame, error) { return frame{Size: -1}, nil }}, good},
		"a size by what is there": {broken{next: func(b []byte, f frame, err error) (frame, error) {
			f.Size = len(b) + 1
			return f, err
		}}, good},
		"a header that is not sealed": {broken{readRequest: func(_ []byte, r *protocol.Request, _ *xprotocol.FrameView, err error) error {
			r.Header.Del("k")
			return err
		}}, good},
		"content outside of the frame": {broken{readRequest: func(_ []byte, _ *protocol.Request, v *xprotocol.FrameView, err error) error {
			v.ContentOffset = 1 << 20
			return err
		}}, good},
		"an error that is not a Fault": {broken{readRequest: func([]byte, *protocol.Request, *xprotocol.FrameView, error) error {
			return errors.New("no")
		}}, good},
		"an untouched frame is another": {broken{appendRequest: func(out, _ []byte, _ *protocol.Header, _ time.Duration) ([]byte, error) {
			out[len(out)-1] ^= 1
			return out, nil
		}}, good},
		"a change is ignored": {broken{appendRequest: func(out, frame []byte, h *protocol.Header, _ time.Duration) ([]byte, error) {
			if h.Changed() {
				out = append([]byte(before), frame...)
			}
			return out, nil
		}}, good},
		"a change is an error that is not a Fault": {broken{appendRequest: func(out, _ []byte, h *protocol.Header, _ time.Duration) ([]byte, error) {
			if h.Changed() {
				return out[:len(before)], errors.New("no")
			}
			return out, nil
		}}, good},
		"a change is a Fault, and appended": {broken{appendRequest: func(out, _ []byte, h *protocol.Header, _ time.Duration) ([]byte, error) {
			if h.Changed() {
				return out, protocol.NewFault(protocol.Internal, nil)
			}
			return out, nil
		}}, good},
		"a changed frame is too long": {broken{appendRequest: func(out, _ []byte, h *protocol.Header, _ time.Duration) ([]byte, error) {
			if h.Changed() {
				out = append(out, 0)
			}
			return out, nil
		}}, good},
		"a changed frame cannot be read": {broken{readRequest: func(_ []byte, r *protocol.Request, _ *xprotocol.FrameView, err error) error {
			if r.Header.Get("k") == "w" {
				return protocol.NewFault(protocol.MalformedRequest, nil)
			}
			return err
		}}, good},
		"a timeout is raised": {broken{appendRequest: func(out, _ []byte, _ *protocol.Header, left time.Duration) ([]byte, error) {
			if left > 0 {
				binary.BigEndian.PutUint32(out[8:], 3001)
			}
			return out, nil
		}}, good},
		"a pong with another id": {broken{signal: func(out []byte) []byte { out[7] ^= 1; return out }}, memo('p', 0, "")},
		"a pong that is cut":     {broken{signal: func(out []byte) []byte { return out[:19] }}, memo('p', 0, "")},
	} {
		r := &recorder{TB: t}
		Invariants(r, d.codec, d.b, "k", "w")
		if len(r.failures) == 0 {
			t.Errorf("%s: nothing is found", name)
		}
	}
}

// TestInvariantsOfValidCodec verifies that Invariants accepts a valid codec for any bytes.
func TestInvariantsOfValidCodec(t *testing.T) {
	good := memo('?', 3000, "hello", "service", "S", "method", "m", "k", "v")
	huge := suite().Oversize[0].Bytes
	for _, b := range [][]byte{
		nil, good, good[:19], good[:21], huge, []byte("GET / HTTP/1.1\r\n"), memo('p', 0, ""), memo('=', 0, "x", "k", "v"),
		memo('?', 0, "", "service", "S"), memo('x', 0, ""),
	} {
		for _, value := range []string{"v", "w", "", "\xff"} {
			r := &recorder{TB: t}
			Invariants(r, example.Codec{}, b, "k", value)
			if len(r.failures) > 0 {
				t.Errorf("of %q: %v", b, r.failures)
			}
		}
	}
}
