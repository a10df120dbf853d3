package codectest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// maxFuzzed is the maximum size of a frame that Invariants pads, in bytes.
const maxFuzzed = 64 << 10

// Fuzz makes f search for bytes for which c violates the contract. The seeds are frames; each is
// combined with changes of a field. Invariants pads incomplete frames with zeros, because most
// inputs would otherwise be truncated.
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

// Invariants checks the guarantees of the contract for any bytes b: nothing panics, a readable
// frame is appended unchanged, and a change of the field name to value can be read back. Fuzz calls
// it.
func Invariants(tb testing.TB, c xprotocol.Codec, b []byte, name, value string) {
	match := c.Match(b)
	if prefixMatch := c.Match(b[:len(b)/2]); prefixMatch != xprotocol.MatchNeedMore && prefixMatch != match {
		tb.Errorf("Match(%x) = %s, of its first half %s", b, matchName(match), matchName(prefixMatch))
	}
	head, err := c.ParseFrame(b)
	if err != nil {
		if head.Size != 0 {
			tb.Errorf("ParseFrame(%x) = %+v with the error %v", b, head, err)
		}
		return
	}
	switch {
	case head.Size < 0, head.Size == 0 && len(b) >= c.Traits().FrameHeaderLen:
		tb.Errorf("ParseFrame of %d bytes = %+v: %x", len(b), head, b)
		return
	case head.Size == 0, head.Size > maxFuzzed:
		return
	}
	frame := append(bytes.Clone(b), make([]byte, max(0, head.Size-len(b)))...)[:head.Size]
	if completed, err := c.ParseFrame(frame); err != nil || completed.Size != head.Size || completed.ID != head.ID {
		tb.Errorf("ParseFrame of %x = %+v, %v, and completed %+v", b, head, err, completed)
		return
	}
	checkForwarded(tb, c, "it", head.Kind, frame)
	switch {
	case isMessage(head.Kind):
		fuzzMessage(tb, c, head, frame, string([]rune(name)), string([]rune(value)))
	case head.Kind == xprotocol.Heartbeat:
		ack := c.AppendHeartbeatAck(nil, frame)
		got, err := c.ParseFrame(ack)
		if want := (xprotocol.Frame{Kind: xprotocol.HeartbeatAck, ID: head.ID, Size: len(ack)}); err != nil || got != want {
			tb.Errorf("the heartbeat %x is acknowledged with %x, which parses as %+v, %v", frame, ack, got, err)
		}
	}
}

// fuzzMessage sets a field. name and value are UTF-8, because other text need not be preserved.
func fuzzMessage(tb testing.TB, c xprotocol.Codec, head xprotocol.Frame, frame []byte, name, value string) {
	var m, reread message
	if read(c, &m, frame) != nil {
		return // checkForwarded has checked the error
	}
	checkRead(tb, c, "it", frame, &m)
	if n := m.view.ContentOffset; n < 0 || n > len(frame) {
		return // checkRead has reported the error
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
		return // the message cannot be changed
	}
	out = out[len(before):]
	if f, err := c.ParseFrame(out); err != nil || f.Size != len(out) || f.Kind != head.Kind || f.ID != head.ID {
		tb.Errorf("after a change, %x is encoded as %x, which parses as %+v, %v", frame, out, f, err)
		return
	}
	c.SetID(out, head.ID) // as in roundTrip
	if err := read(c, &reread, out); err != nil {
		tb.Errorf("after a change, %x is encoded as %x, which cannot be read: %v", frame, out, err)
		return
	}
	if got := reread.header(head.Kind).Get(name); got != value {
		tb.Errorf("%q was set to %q and is received as %q: %x", name, value, got, out)
	}
}

// fuzzTimeout checks that AppendRequest does not raise the timeout, and that the result can be
// read.
func fuzzTimeout(tb testing.TB, c xprotocol.Codec, frame []byte, m *message) {
	var reread message
	out, err := c.AppendRequest(nil, frame, &m.request, &m.view, 7*time.Millisecond)
	if err == nil {
		head, _ := c.ParseFrame(frame)
		c.SetID(out, head.ID) // as in roundTrip
		err = reread.readRequest(c, out)
	}
	if err != nil || reread.view.Timeout > m.view.Timeout {
		tb.Errorf("%x with a timeout of %v is encoded as %x, with %v, %v", frame, m.view.Timeout, out, reread.view.Timeout, err)
	}
}
