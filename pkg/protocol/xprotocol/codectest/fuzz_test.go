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

// TestInvariantsFindDefects verifies that CheckInvariants finds each defect with a single frame.
func TestInvariantsFindDefects(t *testing.T) {
	valid := newFrame('?', 3000, "hello", "service", "S", "method", "m", "k", "v")
	type frame = xprotocol.Frame
	for name, d := range map[string]struct {
		codec faultyCodec
		b     []byte
	}{
		"Match changes its result": {faultyCodec{match: func(b []byte, v xprotocol.MatchResult) xprotocol.MatchResult {
			if len(b) > 40 {
				return xprotocol.MatchNo
			}
			return v
		}}, valid},
		"an error with a size": {faultyCodec{parseFrame: func(_ []byte, f frame, _ error) (frame, error) { return f, errors.New("no") }}, valid},
		"missing size":         {faultyCodec{parseFrame: func([]byte, frame, error) (frame, error) { return frame{}, nil }}, valid},
		"negative size":        {faultyCodec{parseFrame: func([]byte, frame, error) (frame, error) { return frame{Size: -1}, nil }}, valid},
		"size depends on the available bytes": {faultyCodec{parseFrame: func(b []byte, f frame, err error) (frame, error) {
			f.Size = len(b) + 1
			return f, err
		}}, valid},
		"a header that is marked as changed": {faultyCodec{readRequest: func(_ []byte, r *protocol.Request, _ *xprotocol.FrameView, err error) error {
			r.Header.Del("k")
			return err
		}}, valid},
		"content outside of the frame": {faultyCodec{readRequest: func(_ []byte, _ *protocol.Request, v *xprotocol.FrameView, err error) error {
			v.ContentOffset = 1 << 20
			return err
		}}, valid},
		"an error that is not a Fault": {faultyCodec{readRequest: func([]byte, *protocol.Request, *xprotocol.FrameView, error) error {
			return errors.New("no")
		}}, valid},
		"an unchanged frame is changed": {faultyCodec{appendRequest: func(out, _ []byte, _ *protocol.Header, _ time.Duration) ([]byte, error) {
			out[len(out)-1] ^= 1
			return out, nil
		}}, valid},
		"a change is ignored": {faultyCodec{appendRequest: func(out, frame []byte, h *protocol.Header, _ time.Duration) ([]byte, error) {
			if h.Changed() {
				out = append([]byte(bufferPrefix), frame...)
			}
			return out, nil
		}}, valid},
		"a change returns an error that is not a Fault": {faultyCodec{appendRequest: func(out, _ []byte, h *protocol.Header, _ time.Duration) ([]byte, error) {
			if h.Changed() {
				return out[:len(bufferPrefix)], errors.New("no")
			}
			return out, nil
		}}, valid},
		"a change returns a Fault and appends bytes": {faultyCodec{appendRequest: func(out, _ []byte, h *protocol.Header, _ time.Duration) ([]byte, error) {
			if h.Changed() {
				return out, protocol.NewFault(protocol.Internal, nil)
			}
			return out, nil
		}}, valid},
		"a changed frame is too long": {faultyCodec{appendRequest: func(out, _ []byte, h *protocol.Header, _ time.Duration) ([]byte, error) {
			if h.Changed() {
				out = append(out, 0)
			}
			return out, nil
		}}, valid},
		"a changed frame cannot be read": {faultyCodec{readRequest: func(_ []byte, r *protocol.Request, _ *xprotocol.FrameView, err error) error {
			if r.Header.Get("k") == "w" {
				return protocol.NewFault(protocol.MalformedRequest, nil)
			}
			return err
		}}, valid},
		"a timeout is raised": {faultyCodec{appendRequest: func(out, _ []byte, _ *protocol.Header, remaining time.Duration) ([]byte, error) {
			if remaining > 0 {
				binary.BigEndian.PutUint32(out[8:], 3001)
			}
			return out, nil
		}}, valid},
		"acknowledgement with another id": {faultyCodec{changeControlFrame: func(out []byte) []byte { out[7] ^= 1; return out }}, newFrame('p', 0, "")},
		"truncated acknowledgement":       {faultyCodec{changeControlFrame: func(out []byte) []byte { return out[:19] }}, newFrame('p', 0, "")},
	} {
		r := &recorder{TB: t}
		CheckInvariants(r, d.codec, d.b, "k", "w")
		if len(r.failures) == 0 {
			t.Errorf("%s: CheckInvariants found no defect", name)
		}
	}
}

// TestInvariantsOfValidCodec verifies that CheckInvariants accepts a valid codec for any bytes.
func TestInvariantsOfValidCodec(t *testing.T) {
	valid := newFrame('?', 3000, "hello", "service", "S", "method", "m", "k", "v")
	huge := suite().OversizeHeads[0].Bytes
	for _, b := range [][]byte{
		nil, valid, valid[:19], valid[:21], huge, []byte("GET / HTTP/1.1\r\n"), newFrame('p', 0, ""), newFrame('=', 0, "x", "k", "v"),
		newFrame('?', 0, "", "service", "S"), newFrame('x', 0, ""),
	} {
		for _, value := range []string{"v", "w", "", "\xff"} {
			r := &recorder{TB: t}
			CheckInvariants(r, example.Codec{}, b, "k", value)
			if len(r.failures) > 0 {
				t.Errorf("CheckInvariants of %q: %v, want no failure", b, r.failures)
			}
		}
	}
}
