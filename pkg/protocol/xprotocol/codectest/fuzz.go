package codectest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// maxFuzzed is the maximum size of a frame that CheckInvariants checks, in bytes.
const maxFuzzed = 64 << 10

// Fuzz makes f search for bytes for which c violates the contract. The seeds are frames; Fuzz
// combines each with changes of a field. CheckInvariants pads incomplete frames with zeros, because
// most inputs would otherwise be truncated.
func Fuzz(f *testing.F, c xprotocol.Codec, seeds [][]byte) {
	for _, seed := range seeds {
		f.Add(seed, "x-weft", "1")
		f.Add(seed, xprotocol.FieldService, "org.weft.Other")
		f.Add(seed, xprotocol.FieldGroup, "")
		if len(seed) > 0 {
			f.Add(seed[:len(seed)/2], "x-weft", "\U0001f9f5")
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, name, value string) { CheckInvariants(t, c, b, name, value) })
}

// CheckInvariants checks the guarantees of the contract for any bytes b: no method panics, a
// readable frame is appended unchanged, and a field called name that was set to value can be read
// back. Fuzz calls it.
func CheckInvariants(tb testing.TB, c xprotocol.Codec, b []byte, name, value string) {
	match := c.Match(b)
	if prefixMatch := c.Match(b[:len(b)/2]); prefixMatch != xprotocol.MatchNeedMore && prefixMatch != match {
		tb.Errorf("Match(%x) = %s, want the result for the first half, %s", b, matchName(match), matchName(prefixMatch))
	}
	head, err := c.ParseFrame(b)
	if err != nil {
		if head.Size != 0 {
			tb.Errorf("ParseFrame(%x) = %+v with the error %v, want a size of 0", b, head, err)
		}
		return
	}
	switch {
	case head.Size < 0, head.Size == 0 && len(b) >= c.Traits().FrameHeaderLen:
		tb.Errorf("ParseFrame of %d bytes = %+v, want a positive size: %x", len(b), head, b)
		return
	case head.Size == 0, head.Size > maxFuzzed:
		return
	}
	frame := append(bytes.Clone(b), make([]byte, max(0, head.Size-len(b)))...)[:head.Size]
	if completed, err := c.ParseFrame(frame); err != nil || completed.Size != head.Size || completed.ID != head.ID {
		tb.Errorf("ParseFrame of the completed frame of %x = %+v, %v, want the size and the ID of %+v", b, completed, err, head)
		return
	}
	checkForwarded(tb, c, "the fuzzed frame", head.Kind, frame)
	switch {
	case isMessage(head.Kind):
		fuzzMessage(tb, c, head, frame, string([]rune(name)), string([]rune(value)))
	case head.Kind == xprotocol.Heartbeat:
		ack := c.AppendHeartbeatAck(nil, frame)
		got, err := c.ParseFrame(ack)
		if want := (xprotocol.Frame{Kind: xprotocol.HeartbeatAck, ID: head.ID, Size: len(ack)}); err != nil || got != want {
			tb.Errorf("the heartbeat %x is acknowledged with %x, which parses as %+v, %v, want %+v", frame, ack, got, err, want)
		}
	}
}

// fuzzMessage checks that a field that was set can be read back. name and value are UTF-8, because
// a codec need not preserve other text.
func fuzzMessage(tb testing.TB, c xprotocol.Codec, head xprotocol.Frame, frame []byte, name, value string) {
	var m, reread message
	if read(c, &m, frame) != nil {
		return // checkForwarded has checked the error
	}
	checkMessage(tb, c, "the fuzzed frame", frame, &m)
	if n := m.view.ContentOffset; n < 0 || n > len(frame) {
		return // checkMessage has reported the error
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
	case err != nil && (!errors.As(err, &fault) || string(out) != bufferPrefix):
		tb.Errorf("after a change, %x is encoded as %x, %v, want a Fault and no bytes", frame, out, err)
		return
	case err != nil, string(out) == bufferPrefix+string(frame) && head.Kind == xprotocol.Response:
		return // the message cannot be changed
	}
	out = out[len(bufferPrefix):]
	if f, err := c.ParseFrame(out); err != nil || f.Size != len(out) || f.Kind != head.Kind || f.ID != head.ID {
		tb.Errorf("after a change, %x is encoded as %x, which parses as %+v, %v, want the kind and the ID of %+v", frame, out, f, err, head)
		return
	}
	c.SetID(out, head.ID) // updates the checksum, as in roundTrip
	if err := read(c, &reread, out); err != nil {
		tb.Errorf("after a change, %x is encoded as %x, which cannot be read: %v", frame, out, err)
		return
	}
	if got := reread.header(head.Kind).Get(name); got != value {
		tb.Errorf("the field %q is received as %q, want %q: %x", name, got, value, out)
	}
}

// fuzzTimeout checks that AppendRequest does not raise the timeout, and that the result can be
// read.
func fuzzTimeout(tb testing.TB, c xprotocol.Codec, frame []byte, m *message) {
	var reread message
	out, err := c.AppendRequest(nil, frame, &m.request, &m.view, 7*time.Millisecond)
	if err == nil {
		head, _ := c.ParseFrame(frame)
		c.SetID(out, head.ID) // updates the checksum, as in roundTrip
		err = reread.readRequest(c, out)
	}
	if err != nil || reread.view.Timeout > m.view.Timeout {
		tb.Errorf("%x is encoded as %x, with a timeout of %v, %v, want at most %v", frame, out, reread.view.Timeout, err, m.view.Timeout)
	}
}
