package codectest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// maxFuzzed is the maximum size of a frame that Invariants completes, in bytes.
const maxFuzzed = 64 << 10

// Fuzz makes f search for bytes that break c's contract. The seeds are frames; each is tried with a
// changed field. Invariants pads incomplete frames with zeros, so that most inputs are not merely
// truncated.
func Fuzz(f *testing.F, c xprotocol.Codec, seeds [][]byte) {
	for _, seed := range seeds {
		f.Add(seed, "x-weft", "1")
		f.Add(seed, xprotocol.FieldService, "org.weft.Other")
		f.Add(seed, xprotocol.FieldGroup, "")
		if len(seed) > 0 {
			f.Add(seed[:len(seed)/2], "x-weft", "\U0001f9f5")
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, name, value string) { Invariants(t, c, b, name, value) })
}

// Invariants checks what the contract guarantees for any bytes b: nothing panics, a readable frame
// is appended unchanged, and a change of the field name to value can be read back. Fuzz calls it.
func Invariants(tb testing.TB, c xprotocol.Codec, b []byte, name, value string) {
	verdict := c.Match(b)
	if half := c.Match(b[:len(b)/2]); half != xprotocol.MatchNeedMore && half != verdict {
		tb.Errorf("Match(%x) = %s, of its first half %s", b, matchName(verdict), matchName(half))
	}
	head, err := c.ParseFrame(b)
	if err != nil {
		if head.Size != 0 {
			tb.Errorf("Next(%x) = %+v with the error %v", b, head, err)
		}
		return
	}
	switch {
	case head.Size < 0, head.Size == 0 && len(b) >= c.Traits().FrameHeaderLen:
		tb.Errorf("Next of %d bytes = %+v: %x", len(b), head, b)
		return
	case head.Size == 0, head.Size > maxFuzzed:
		return
	}
	frame := append(bytes.Clone(b), make([]byte, max(0, head.Size-len(b)))...)[:head.Size]
	if again, err := c.ParseFrame(frame); err != nil || again.Size != head.Size || again.ID != head.ID {
		tb.Errorf("Next of %x = %+v, %v, and completed %+v", b, head, err, again)
		return
	}
	digest(tb, c, "it", head.Kind, frame)
	switch {
	case isMessage(head.Kind):
		fuzzMessage(tb, c, head, frame, string([]rune(name)), string([]rune(value)))
	case head.Kind == xprotocol.Heartbeat:
		pong := c.AppendHeartbeatAck(nil, frame)
		got, err := c.ParseFrame(pong)
		if want := (xprotocol.Frame{Kind: xprotocol.HeartbeatAck, ID: head.ID, Size: len(pong)}); err != nil || got != want {
			tb.Errorf("the heartbeat %x is acknowledged with %x, which parses as %+v, %v", frame, pong, got, err)
		}
	}
}

// fuzzMessage sets a field. name and value are UTF-8, because other text need not be preserved.
func fuzzMessage(tb testing.TB, c xprotocol.Codec, head xprotocol.Frame, frame []byte, name, value string) {
	var m, again message
	if read(c, &m, frame) != nil {
		return // digest has checked the error
	}
	checkRead(tb, c, "it", frame, &m)
	if n := m.view.ContentOffset; n < 0 || n > len(frame) {
		return // checkRead has reported it
	}
	if isRequest(head.Kind) {
		fuzzTimeout(tb, c, frame, &m)
	}
	h := m.header(head.Kind)
	if h.Set(name, value); !h.Changed() {
		return
	}
	out, err := m.append(c, head.Kind, frame)
	var fault *protocol.Fault
	switch {
	case err != nil && (!errors.As(err, &fault) || string(out) != before):
		tb.Errorf("after a change, %x is encoded as %x, %v", frame, out, err)
		return
	case err != nil, string(out) == before+string(frame) && head.Kind == xprotocol.Response:
		return // it cannot be changed
	}
	out = out[len(before):]
	if f, err := c.ParseFrame(out); err != nil || f.Size != len(out) || f.Kind != head.Kind || f.ID != head.ID {
		tb.Errorf("after a change, %x is encoded as %x, which parses as %+v, %v", frame, out, f, err)
		return
	}
	c.SetID(out, head.ID) // as in carry
	if err := read(c, &again, out); err != nil {
		tb.Errorf("after a change, %x is encoded as %x, which cannot be read: %v", frame, out, err)
		return
	}
	if got := again.header(head.Kind).Get(name); got != value {
		tb.Errorf("%q was set to %q and is received as %q: %x", name, value, got, out)
	}
}

// fuzzTimeout checks that AppendRequest does not raise the timeout, and that the result can be
// read.
func fuzzTimeout(tb testing.TB, c xprotocol.Codec, frame []byte, m *message) {
	var again message
	out, err := c.AppendRequest(nil, frame, &m.request, &m.view, 7*time.Millisecond)
	if err == nil {
		head, _ := c.ParseFrame(frame)
		c.SetID(out, head.ID) // as in carry
		err = again.readRequest(c, out)
	}
	if err != nil || again.view.Timeout > m.view.Timeout {
		tb.Errorf("%x with a timeout of %v is encoded as %x, with %v, %v", frame, m.view.Timeout, out, again.view.Timeout, err)
	}
}
