package codectest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Error texts. Both contain non-ASCII characters; the second has a character that UTF-16, and protocols
// that count in it, represent by two units.
const (
	faultText     = "nobody is hôme"
	faultTextWide = "nobody is 🏠 at «a»"
)

// checkFaults checks that each reason has an error response, with its code and the text.
func checkFaults(tb testing.TB, c xprotocol.Codec, s *Suite) {
	for _, f := range s.Frames {
		head, _ := c.ParseFrame(f.Bytes)
		if !isRequest(head.Kind) {
			continue
		}
		for reason := range protocol.Reasons() {
			name := fmt.Sprintf("%s, %v", f.Name, reason)
			frame := appended(tb, name, c.AppendErrorResponse([]byte(before), f.Bytes, reason, faultText))
			checkSignal(tb, c, s, name, frame, xprotocol.Frame{Kind: xprotocol.Response, ID: head.ID, Size: len(frame)})
			short := f.Bytes[:min(len(f.Bytes), c.Traits().FrameHeaderLen)]
			if got := c.AppendErrorResponse([]byte(before), short, reason, faultText); string(got) != before+string(frame) {
				tb.Errorf("%s: the request's head yields %x, the complete request %x", name, got, frame)
			}
			var m message
			if err := m.readResponse(c, frame); err != nil {
				tb.Errorf("%s: it cannot be read: %v", name, err)
				continue
			}
			if want := s.Code(reason.Spec()); m.response.Code != want || m.response.Status < 400 {
				tb.Errorf("%s: code %d, status %d, want the code %d", name, m.response.Code, m.response.Status, want)
			}
			checkFaultText(tb, c, s, name, f.Bytes, reason)
		}
	}
}

// checkFaultText checks that a peer finds the text in an error response.
func checkFaultText(tb testing.TB, c xprotocol.Codec, s *Suite, name string, request []byte, reason protocol.Reason) {
	if s.FaultText == nil {
		if frame := c.AppendErrorResponse(nil, request, reason, faultText); !strings.Contains(string(frame), faultText) {
			tb.Errorf("%s: the text is not in %q", name, frame)
		}
		return
	}
	for _, want := range []string{"", faultText, faultTextWide} {
		if got, err := s.FaultText(c.AppendErrorResponse(nil, request, reason, want)); err != nil || got != want {
			tb.Errorf("%s: the text %q is received as %q, %v", name, want, got, err)
		}
	}
}

// appended returns the bytes after before.
func appended(tb testing.TB, name string, out []byte) []byte {
	frame, found := bytes.CutPrefix(out, []byte(before))
	if !found {
		tb.Errorf("%s: the previous bytes of the buffer were changed to %x", name, out)
	}
	return frame
}

// checkSignal checks a frame that the codec generated.
func checkSignal(tb testing.TB, c xprotocol.Codec, s *Suite, name string, frame []byte, want xprotocol.Frame) {
	got, err := c.ParseFrame(frame)
	if err != nil || got != want {
		tb.Errorf("%s: %x is a frame %+v, %v, want %+v", name, frame, got, err, want)
	}
	checkIntact(tb, s, name, frame)
}

// checkPings checks that AppendHeartbeat makes a heartbeat, and that its response has its id.
func checkPings(tb testing.TB, c xprotocol.Codec, s *Suite) {
	checkPong := func(name string, ping []byte) {
		head, _ := c.ParseFrame(ping)
		pong := appended(tb, name, c.AppendHeartbeatAck([]byte(before), ping))
		checkSignal(tb, c, s, name+", its acknowledgment", pong, xprotocol.Frame{Kind: xprotocol.HeartbeatAck, ID: head.ID, Size: len(pong)})
	}
	for _, f := range s.Frames {
		if head, _ := c.ParseFrame(f.Bytes); head.Kind == xprotocol.Heartbeat {
			checkPong(f.Name, f.Bytes)
		}
	}
	for _, id := range []uint64{0, 1, c.Traits().MaxID} {
		ping := appended(tb, "a heartbeat", c.AppendHeartbeat([]byte(before), id))
		if len(ping) == 0 {
			return // the protocol has none
		}
		name := fmt.Sprintf("a heartbeat with the id %d", id)
		checkSignal(tb, c, s, name, ping, xprotocol.Frame{Kind: xprotocol.Heartbeat, ID: id, Size: len(ping)})
		checkPong(name, ping)
	}
}

// checkGoAway checks that ParseFrame recognizes the GOAWAY that the codec makes.
func checkGoAway(tb testing.TB, c xprotocol.Codec, s *Suite) {
	for _, id := range []uint64{0, 1, c.Traits().MaxID} {
		frame := appended(tb, "a GOAWAY", c.AppendGoAway([]byte(before), id))
		if len(frame) == 0 {
			return // the protocol has none
		}
		checkSignal(tb, c, s, fmt.Sprintf("a GOAWAY with the id %d", id), frame, xprotocol.Frame{Kind: xprotocol.GoAway, ID: id, Size: len(frame)})
	}
}
