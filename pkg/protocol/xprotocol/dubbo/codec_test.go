package dubbo

import (
	"flag"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

var update = flag.Bool("update", false, "rewrite testdata/captures.txt and the tables of README.md, and add new frames to testdata/judged.tsv")

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		name, first string
		want        xprotocol.MatchResult
	}{
		{"empty", "", xprotocol.MatchNeedMore},
		{"half the magic", "\xda", xprotocol.MatchNeedMore},
		{"the magic", "\xda\xbb", xprotocol.MatchYes},
		{"a head", "\xda\xbb\xc2\x00\x00\x00", xprotocol.MatchYes},
		{"another second byte", "\xda\xbc", xprotocol.MatchNo},
		{"HTTP/1", "G", xprotocol.MatchNo},
		{"HTTP/2", "PRI * HTTP/2.0\r\n", xprotocol.MatchNo},
		{"TLS", "\x16\x03\x01", xprotocol.MatchNo},
		{"Bolt v1", "\x01\x01\x00\x01", xprotocol.MatchNo},
		{"Bolt v2", "\x02\x01\x01\x00\x01", xprotocol.MatchNo},
	} {
		if got := (Codec{}).Match([]byte(c.first)); got != c.want {
			t.Errorf("%s: Match(%q) = %v, want %v", c.name, c.first, got, c.want)
		}
	}
}

// TestOtherBytesAreAnError verifies that ParseFrame returns an error for bytes that do not start
// with the magic, even if they are fewer than a frame head, instead of asking for more bytes.
func TestOtherBytesAreAnError(t *testing.T) {
	for _, b := range []string{"G", "\xda\x00", strings.Repeat("x", 32), strings.Repeat("\x00", 32)} {
		if f, err := (Codec{}).ParseFrame([]byte(b)); err == nil || f.Size != 0 {
			t.Errorf("ParseFrame(%q) = %+v, %v, want an error", b, f, err)
		}
	}
}

func TestKinds(t *testing.T) {
	event := byte(flagRequest | flagEvent)
	for _, c := range []struct {
		name  string
		frame []byte
		want  xprotocol.Kind
	}{
		{"a request", newFrame(twoWay, 0), xprotocol.Request},
		{"a one-way request", newFrame(flagRequest|serializationHessian, 0), xprotocol.OneWay},
		{"a response", newFrame(responseFlags, 20), xprotocol.Response},
		{"a response with the two-way bit", newFrame(responseFlags|flagTwoWay, 20), xprotocol.Response},
		{"a heartbeat", newFrame(twoWay|flagEvent, 0, []byte("N")), xprotocol.Heartbeat},
		{"a heartbeat without a body", newFrame(twoWay|flagEvent, 0), xprotocol.Heartbeat},
		{"a heartbeat with two nulls", newFrame(twoWay|flagEvent, 0, []byte("NN")), xprotocol.Heartbeat},
		{"a one-way heartbeat", newFrame(event|serializationHessian, 0, []byte("N")), xprotocol.Ignored},
		{"a heartbeat ack", newFrame(responseFlags|flagEvent, 20, []byte("NN")), xprotocol.HeartbeatAck},
		{"read only", newFrame(event|serializationHessian, 0, hessianStrings("R")), xprotocol.GoAway},
		{"read only, in a long form", newFrame(event|serializationHessian, 0, []byte("S\x00\x01R")), xprotocol.GoAway},
		{"read only with the two-way bit", newFrame(twoWay|flagEvent, 0, hessianStrings("R")), xprotocol.GoAway},
		{"writable again", newFrame(event|serializationHessian, 0, hessianStrings("W")), xprotocol.Ignored},
		{"a chunk of a string, which begins with R", newFrame(twoWay|flagEvent, 0, []byte("R\x00\x01x")), xprotocol.Heartbeat},
		{"an event that is too long", newFrame(event|6, 0, []byte(strings.Repeat("R", 65))), xprotocol.Ignored},
		{"read only in fastjson", findCapture(t, "dubbo-2.7.23 fastjson R"), xprotocol.GoAway},
		{"null in fastjson", findCapture(t, "dubbo-2.7.23 fastjson heartbeat"), xprotocol.Heartbeat},
		{"read only in nativejava", findCapture(t, "dubbo-2.7.23 nativejava R"), xprotocol.GoAway},
		{"read only in fastjson2", findCapture(t, "dubbo-3.3.5 fastjson2 R"), xprotocol.GoAway},
		{"writable again in fastjson2", findCapture(t, "dubbo-3.3.5 fastjson2 W"), xprotocol.Ignored},
		{"null in fastjson2", findCapture(t, "dubbo-3.3.5 fastjson2 heartbeat"), xprotocol.Heartbeat},
	} {
		f, err := Codec{}.ParseFrame(c.frame)
		if err != nil || f.Kind != c.want || f.ID != 7 {
			t.Errorf("%s: ParseFrame = %+v, %v, want kind %d and id 7", c.name, f, err, c.want)
		}
	}
}
