package dubbo

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/hessian"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

func TestErrorResponses(t *testing.T) {
	for reason := range protocol.Reasons() {
		for _, serialization := range []byte{serializationHessian, 23} {
			request := newFrame(flagRequest|flagTwoWay|serialization, 0, []byte("body"))
			got := Codec{}.AppendErrorResponse([]byte("before"), request[:headSize], reason, "what 是 wrong")
			got, ok := bytes.CutPrefix(got, []byte("before"))
			f, err := Codec{}.ParseFrame(got)
			if !ok || err != nil || f != (xprotocol.Frame{Kind: xprotocol.Response, ID: 7, Size: len(got)}) {
				t.Fatalf("%v: AppendErrorResponse = %x, which parses as %+v, %v; want a complete response with the ID 7", reason, got, f, err)
			}
			spec := reason.Spec()
			if r := readResponse(t, got); r.Code != int(spec.Dubbo) || !isHessian(got) {
				t.Errorf("%v: code %d, want %d", reason, r.Code, spec.Dubbo)
			}
			var d hessian.Decoder
			d.Reset(got[headSize:])
			text, err := d.Text()
			if want := fmt.Sprintf("%d|what 是 wrong", spec.HTTP); string(text) != want || err != nil || d.Kind() != hessian.End {
				t.Errorf("%v: text %q, %v, want %q", reason, text, err, want)
			}
		}
	}
}

func TestErrorStatuses(t *testing.T) {
	for reason, want := range map[protocol.Reason]string{
		protocol.ReasonNoRoute: "60 404|x", protocol.NoHealthyHost: "60 502|x", protocol.Overflow: "100 503|x", protocol.UpstreamTimeout: "30 504|x",
		protocol.ReasonDenied: "70 403|x", protocol.MalformedRequest: "40 400|x", protocol.BodyTooLarge: "40 413|x",
	} {
		got := Codec{}.AppendErrorResponse(nil, newFrame(twoWay, 0), reason, "x")
		if got := fmt.Sprintf("%d %s", got[statusOffset], got[headSize+1:]); got != want {
			t.Errorf("%v is %q, want %q", reason, got, want)
		}
	}
}

func TestHeartbeat(t *testing.T) {
	got := Codec{}.AppendHeartbeat([]byte("before"), 76)
	if want := "before" + string(findCapture(t, "16")); string(got) != want {
		t.Errorf("AppendHeartbeat = %x, want %x", got, want)
	}
}

func TestHeartbeatAck(t *testing.T) {
	longBody := bytes.Repeat([]byte{'x'}, maxEvent+1)
	for _, c := range []struct{ name, flags, body, wantFlags, want string }{
		{"Hessian", "\xe2", "N", "\x22", "N"},
		{"Hessian, two nulls", "\xe2", "NN", "\x22", "N"},
		{"Hessian, no body", "\xe2", "", "\x22", "N"},
		{"Hessian, a long body", "\xe2", string(longBody), "\x22", "N"},
		{"another serialization, its null", "\xe6", "null\r\n", "\x26", "null\r\n"},
		{"another serialization, no body", "\xe6", "", "\x22", "N"},
		{"another serialization, a long body", "\xe6", string(longBody), "\x22", "N"},
	} {
		ping := newFrame(c.flags[0], 0, []byte(c.body))
		want := "before" + string(newFrame(c.wantFlags[0], statusOK, []byte(c.want)))
		if got := (Codec{}).AppendHeartbeatAck([]byte("before"), ping); string(got) != want {
			t.Errorf("%s: AppendHeartbeatAck = %x, want %x", c.name, got, want)
		}
	}
}

// TestHeartbeatAckMatchesJava verifies that heartbeats of Java clients get the response that Java
// sends, in every serialization.
func TestHeartbeatAckMatchesJava(t *testing.T) {
	n := 0
	for _, c := range captures(t) {
		name, ok := strings.CutSuffix(c.name, " heartbeat")
		if !ok {
			continue
		}
		n++
		if got, want := (Codec{}).AppendHeartbeatAck(nil, c.frame), findCapture(t, name+" heartbeat-answer"); !bytes.Equal(got, want) {
			t.Errorf("%s: AppendHeartbeatAck = %x, want %x", c.name, got, want)
		}
	}
	if n != 8 {
		t.Errorf("%d captured heartbeats, want 8", n)
	}
}

func TestGoAway(t *testing.T) {
	got := Codec{}.AppendGoAway([]byte("before"), 7)
	if want := "before" + string(newFrame(flagRequest|flagEvent|serializationHessian, 0, []byte("\x01R"))); string(got) != want {
		t.Fatalf("AppendGoAway = %x, want %x", got, want)
	}
	if javaFrame := findCapture(t, "dubbo-2.7.23 hessian2 R"); !bytes.HasSuffix(got, javaFrame) {
		t.Errorf("AppendGoAway = %x, want the bytes that Java sends, %x", got, javaFrame)
	}
	if f, err := (Codec{}).ParseFrame(got[len("before"):]); err != nil || f.Kind != xprotocol.GoAway || f.ID != 7 {
		t.Errorf("ParseFrame = %+v, %v; want a GOAWAY with the ID 7", f, err)
	}
}

// TestErrorResponseWithAnyText verifies that peers can read an error text of any length and
// content.
func TestErrorResponseWithAnyText(t *testing.T) {
	for _, text := range []string{"", "\xff", "😀", strings.Repeat("é", 100_000)} {
		got := Codec{}.AppendErrorResponse(nil, newFrame(twoWay, 0), protocol.Internal, text)
		var d hessian.Decoder
		d.Reset(got[headSize:])
		decoded, err := d.Text()
		if want := "500|" + string([]rune(text)); err != nil || string(decoded) != want {
			t.Errorf("the text %.10q is decoded as %.20q, %v; want %.20q", text, decoded, err, want)
		}
	}
}
