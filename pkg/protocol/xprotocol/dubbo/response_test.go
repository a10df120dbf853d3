package dubbo

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

func TestStatuses(t *testing.T) {
	for code, want := range map[byte]int{
		20: 200, 25: 500, 30: 504, 31: 504, 35: 502, 40: 400, 50: 502, 60: 404, 70: 500, 80: 500, 90: 400, 100: 503, 0: 500, 255: 500,
	} {
		frame := newFrame(responseFlags, code, hessianStrings("text"))
		if code == statusOK {
			frame = newFrame(responseFlags, code, []byte{0x92})
		}
		r := readResponse(t, frame)
		if r.Code != int(code) || r.Status != want || r.Header.Len() != 0 {
			t.Errorf("status %d: HTTP status %d, code %d, want %d", code, r.Status, r.Code, want)
		}
	}
}

func TestReadResponse(t *testing.T) {
	value, attachments := hessianStrings("value"), mapOf("a", "1", "version", "2", "Group", "g")
	const want = "a=1 version=2 Group=g"
	for _, c := range []struct {
		name  string
		frame []byte
		want  string
	}{
		{"an exception", newFrame(responseFlags, statusOK, []byte{0x90}, value), ""},
		{"a value", newFrame(responseFlags, statusOK, []byte{0x91}, value), ""},
		{"a value that is not decoded", newFrame(responseFlags, statusOK, []byte{0x91, 0xff}), ""},
		{"null", newFrame(responseFlags, statusOK, []byte{0x92}), ""},
		{"an exception with attachments", newFrame(responseFlags, statusOK, []byte{0x93}, value, attachments), want},
		{"a value with attachments", newFrame(responseFlags, statusOK, []byte{0x94}, value, attachments), want},
		{"null with attachments", newFrame(responseFlags, statusOK, []byte{0x95}, attachments), want},
		{"attachments that are null", newFrame(responseFlags, statusOK, []byte{0x94}, value, []byte{'N'}), ""},
		{"missing attachments", newFrame(responseFlags, statusOK, []byte{0x94}, value), ""},
		{"another serialization", newFrame(23, statusOK, []byte{1, 2, 3}), ""},
	} {
		r := readResponse(t, c.frame)
		if got := fields(&r.Header); r.Status != 200 || r.Code != statusOK || got != c.want || r.ContentLength != int64(len(c.frame)-headSize) {
			t.Errorf("%s: response %+v, fields %s, want %s", c.name, r, got, c.want)
		}
	}
}

// TestMalformedAttachments verifies that a response with malformed attachments is forwarded
// unchanged unless its fields are used, and that it cannot be changed.
func TestMalformedAttachments(t *testing.T) {
	for _, c := range []struct {
		name string
		body []byte
		want string
		rule string
	}{
		{"no value", []byte{0x94}, "", "value"},
		{"truncated value", []byte("\x94\x05val"), "", "value"},
		{"truncated attachments", []byte("\x95H\x01a\x011\x01k"), "a=1", "attachments"},
		{"attachments that are not a map", []byte("\x95T"), "", "attachments"},
		{"too many attachments", []byte("\x95H" + strings.Repeat("\x01k\x01v", 1025) + "Z"), strings.TrimSpace(strings.Repeat("k=v ", 1024)), "more than 1024"},
	} {
		frame := newFrame(responseFlags, statusOK, c.body)
		var r protocol.Response
		var v xprotocol.FrameView
		if err := (Codec{}).ReadResponse(frame, &r, &v); err != nil {
			t.Errorf("%s: %v, want no error", c.name, err)
			continue
		}
		if out, err := (Codec{}).AppendResponse(nil, frame, &r, &v); err != nil || !bytes.Equal(out, frame) {
			t.Errorf("%s: forwarded as %x, %v, want it unchanged", c.name, out, err)
		}
		if got := fields(&r.Header); got != c.want {
			t.Errorf("%s: fields %q, want %q", c.name, got, c.want)
		}
		r.Header.Set("new", "field")
		_, err := Codec{}.AppendResponse(nil, frame, &r, &v)
		var fault *protocol.Fault
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.rule) {
			t.Errorf("%s: after a change: error %v, want one that contains %q", c.name, err, c.rule)
		}
	}
}

func TestMalformedResponse(t *testing.T) {
	for _, c := range []struct {
		name string
		body []byte
		want string
	}{
		{"empty", nil, "kind of result"},
		{"string instead of a kind", hessianStrings("x"), "kind of result"},
		{"unknown kind", []byte{0x96}, "6 is not a valid kind"},
		{"negative kind", []byte{0x8f}, "-1 is not a valid kind"},
	} {
		var r protocol.Response
		var v xprotocol.FrameView
		err := Codec{}.ReadResponse(newFrame(responseFlags, statusOK, c.body), &r, &v)
		var fault *protocol.Fault
		if !errors.As(err, &fault) || fault.Reason != protocol.UpstreamMalformed || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want UpstreamMalformed with %q", c.name, err, c.want)
		}
	}
}
