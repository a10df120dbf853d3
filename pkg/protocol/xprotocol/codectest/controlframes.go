package codectest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// Error texts. Both contain non-ASCII characters; the second has a character of two UTF-16 code
// units, which some protocols count.
const (
	errorText     = "no hôst available"
	errorTextWide = "no 🏠 at «a»"
)

// checkErrorResponses checks that each reason has an error response, with its code and the text.
func checkErrorResponses(tb testing.TB, c xprotocol.Codec, s *Suite) {
	for _, f := range s.Frames {
		head, _ := c.ParseFrame(f.Bytes)
		if !isRequest(head.Kind) {
			continue
		}
		for reason := range protocol.Reasons() {
			name := fmt.Sprintf("%s, %v", f.Name, reason)
			frame := cutBufferPrefix(tb, name, c.AppendErrorResponse([]byte(bufferPrefix), f.Bytes, reason, errorText))
			checkControlFrame(tb, c, s, name, frame, xprotocol.Frame{Kind: xprotocol.Response, ID: head.ID, Size: len(frame)})
			short := f.Bytes[:min(len(f.Bytes), c.Traits().FrameHeaderLen)]
			if got := c.AppendErrorResponse([]byte(bufferPrefix), short, reason, errorText); string(got) != bufferPrefix+string(frame) {
				tb.Errorf("%s: error response for the request's head is %x, want the response for the complete request, %x", name, got, frame)
			}
			var m message
			if err := m.readResponse(c, frame); err != nil {
				tb.Errorf("%s: the error response cannot be read: %v", name, err)
				continue
			}
			if want := s.Code(reason.Spec()); m.response.Code != want || m.response.Status < 400 {
				tb.Errorf("%s: code %d, status %d, want the code %d", name, m.response.Code, m.response.Status, want)
			}
			checkErrorText(tb, c, s, name, f.Bytes, reason)
		}
	}
}

// checkErrorText checks that a peer finds the text in an error response.
func checkErrorText(tb testing.TB, c xprotocol.Codec, s *Suite, name string, request []byte, reason protocol.Reason) {
	if s.ErrorText == nil {
		if frame := c.AppendErrorResponse(nil, request, reason, errorText); !strings.Contains(string(frame), errorText) {
			tb.Errorf("%s: error response %q, want it to contain %q", name, frame, errorText)
		}
		return
	}
	for _, want := range []string{"", errorText, errorTextWide} {
		if got, err := s.ErrorText(c.AppendErrorResponse(nil, request, reason, want)); err != nil || got != want {
			tb.Errorf("%s: error text received as %q, %v, want %q", name, got, err, want)
		}
	}
}

// cutBufferPrefix returns the bytes of out after bufferPrefix.
func cutBufferPrefix(tb testing.TB, name string, out []byte) []byte {
	frame, found := bytes.CutPrefix(out, []byte(bufferPrefix))
	if !found {
		tb.Errorf("%s: the buffer begins with %x, want the previous bytes %q", name, out, bufferPrefix)
	}
	return frame
}

// checkControlFrame checks that ParseFrame returns want for a frame that the codec generated.
func checkControlFrame(tb testing.TB, c xprotocol.Codec, s *Suite, name string, frame []byte, want xprotocol.Frame) {
	got, err := c.ParseFrame(frame)
	if err != nil || got != want {
		tb.Errorf("%s: %x parses as %+v, %v, want %+v", name, frame, got, err, want)
	}
	checkChecksum(tb, s, name, frame)
}

// checkHeartbeats checks that AppendHeartbeat appends a heartbeat, and that its acknowledgement has
// its id.
func checkHeartbeats(tb testing.TB, c xprotocol.Codec, s *Suite) {
	checkAck := func(name string, heartbeat []byte) {
		head, _ := c.ParseFrame(heartbeat)
		ack := cutBufferPrefix(tb, name, c.AppendHeartbeatAck([]byte(bufferPrefix), heartbeat))
		checkControlFrame(tb, c, s, name+", its acknowledgement", ack, xprotocol.Frame{Kind: xprotocol.HeartbeatAck, ID: head.ID, Size: len(ack)})
	}
	for _, f := range s.Frames {
		if head, _ := c.ParseFrame(f.Bytes); head.Kind == xprotocol.Heartbeat {
			checkAck(f.Name, f.Bytes)
		}
	}
	for _, id := range []uint64{0, 1, c.Traits().MaxID} {
		heartbeat := cutBufferPrefix(tb, "a heartbeat", c.AppendHeartbeat([]byte(bufferPrefix), id))
		if len(heartbeat) == 0 {
			return // the protocol has no such frame
		}
		name := fmt.Sprintf("a heartbeat with the id %d", id)
		checkControlFrame(tb, c, s, name, heartbeat, xprotocol.Frame{Kind: xprotocol.Heartbeat, ID: id, Size: len(heartbeat)})
		checkAck(name, heartbeat)
	}
}

// checkGoAway checks that ParseFrame recognizes the GOAWAY that the codec appends.
func checkGoAway(tb testing.TB, c xprotocol.Codec, s *Suite) {
	for _, id := range []uint64{0, 1, c.Traits().MaxID} {
		frame := cutBufferPrefix(tb, "a GOAWAY", c.AppendGoAway([]byte(bufferPrefix), id))
		if len(frame) == 0 {
			return // the protocol has no such frame
		}
		checkControlFrame(tb, c, s, fmt.Sprintf("a GOAWAY with the id %d", id), frame, xprotocol.Frame{Kind: xprotocol.GoAway, ID: id, Size: len(frame)})
	}
}
