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
		frame := frameOf(answer, code, texts("text"))
		if code == statusOK {
			frame = frameOf(answer, code, []byte{0x92})
		}
		r := readResponse(t, frame)
		if r.Code != int(code) || r.Status != want || r.Header.Len() != 0 {
			t.Errorf("status %d is read as %d, code %d, want %d", code, r.Status, r.Code, want)
		}
	}
}

func TestReadResponse(t *testing.T) {
	value, attachments := texts("value"), mapOf("a", "1", "version", "2", "Group", "g")
	const want = "a=1 version=2 Group=g"
	for _, c := range []struct {
		name  string
		frame []byte
		want  string
	}{
		{"an exception", frameOf(answer, statusOK, []byte{0x90}, value), ""},
		{"a value", frameOf(answer, statusOK, []byte{0x91}, value), ""},
		{"a value that is not decoded", frameOf(answer, statusOK, []byte{0x91, 0xff}), ""},
		{"null", frameOf(answer, statusOK, []byte{0x92}), ""},
		{"an exception with attachments", frameOf(answer, statusOK, []byte{0x93}, value, attachments), want},
		{"a value with attachments", frameOf(answer, statusOK, []byte{0x94}, value, attachments), want},
		{"null with attachments", frameOf(answer, statusOK, []byte{0x95}, attachments), want},
		{"attachments that are null", frameOf(answer, statusOK, []byte{0x94}, value, []byte{'N'}), ""},
		{"attachments that are not there", frameOf(answer, statusOK, []byte{0x94}, value), ""},
		{"a foreign serialization", frameOf(23, statusOK, []byte{1, 2, 3}), ""},
	} {
		r := readResponse(t, c.frame)
		if got := fields(&r.Header); r.Status != 200 || r.Code != statusOK || got != c.want || r.ContentLength != int64(len(c.frame)-headSize) {
			t.Errorf("%s: read as %+v %s, want %s", c.name, r, got, c.want)
		}
	}
}

// TestMalformedAttachments verifies that a response with malformed attachments is forwarded unchanged
// unless its fields are used, and that it cannot be changed.
func TestMalformedAttachments(t *testing.T) {
	for _, c := range []struct {
		name string
		body []byte
		want string
		says string
	}{
		{"no value", []byte{0x94}, "", "value"},
		{"a value that is cut", []byte("\x94\x05val"), "", "value"},
		{"attachments that are cut", []byte("\x95H\x01a\x011\x01k"), "a=1", "attachments"},
		{"attachments that are none", []byte("\x95T"), "", "attachments"},
		{"too many attachments", []byte("\x95H" + strings.Repeat("\x01k\x01v", 1025) + "Z"), strings.TrimSpace(strings.Repeat("k=v ", 1024)), "more than 1024"},
	} {
		frame := frameOf(answer, statusOK, c.body)
		var r protocol.Response
		var v xprotocol.FrameView
		if err := (Codec{}).ReadResponse(frame, &r, &v); err != nil {
			t.Errorf("%s: %v, want a response that passes", c.name, err)
			continue
		}
		if out, err := (Codec{}).AppendResponse(nil, frame, &r, &v); err != nil || !bytes.Equal(out, frame) {
			t.Errorf("%s: passed on as %x, %v, want it as it came", c.name, out, err)
		}
		if got := fields(&r.Header); got != c.want {
			t.Errorf("%s: fields %q, want %q", c.name, got, c.want)
		}
		r.Header.Set("new", "field")
		_, err := Codec{}.AppendResponse(nil, frame, &r, &v)
		var fault *protocol.Fault
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: changed, error %v, want one that speaks of %q", c.name, err, c.says)
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
		{"a string for a kind", texts("x"), "kind of result"},
		{"no such kind", []byte{0x96}, "6 is not a valid kind"},
		{"less than any kind", []byte{0x8f}, "-1 is not a valid kind"},
	} {
		var r protocol.Response
		var v xprotocol.FrameView
		err := Codec{}.ReadResponse(frameOf(answer, statusOK, c.body), &r, &v)
		var fault *protocol.Fault
		if !errors.As(err, &fault) || fault.Reason != protocol.UpstreamMalformed || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want a malformed answer that speaks of %q", c.name, err, c.want)
		}
	}
}
