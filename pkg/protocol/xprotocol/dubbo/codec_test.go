package dubbo

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

var update = flag.Bool("update", false, "write testdata/captures.txt anew, and what is new of testdata/judged.tsv")

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		name, first string
		want        xprotocol.Verdict
	}{
		{"nothing", "", xprotocol.Unsure},
		{"half the magic", "\xda", xprotocol.Unsure},
		{"the magic", "\xda\xbb", xprotocol.Yes},
		{"a head", "\xda\xbb\xc2\x00\x00\x00", xprotocol.Yes},
		{"another second byte", "\xda\xbc", xprotocol.No},
		{"HTTP/1", "G", xprotocol.No},
		{"HTTP/2", "PRI * HTTP/2.0\r\n", xprotocol.No},
		{"TLS", "\x16\x03\x01", xprotocol.No},
		{"Bolt v1", "\x01\x01\x00\x01", xprotocol.No},
		{"Bolt v2", "\x02\x01\x01\x00\x01", xprotocol.No},
	} {
		if got := (Codec{}).Match([]byte(c.first)); got != c.want {
			t.Errorf("%s: Match(%q) = %v, want %v", c.name, c.first, got, c.want)
		}
	}
}

// Every capture: what the frame is, and all of its view.
func TestCapturesAreRead(t *testing.T) {
	const file = "testdata/captures.txt"
	var got strings.Builder
	for _, c := range captures(t) {
		f, err := Codec{}.Next(c.frame)
		if err != nil || f.Size != len(c.frame) {
			t.Fatalf("%s: Next = %+v, %v; the frame has %d bytes", c.name, f, err, len(c.frame))
		}
		fmt.Fprintf(&got, "%s\n\tkind %d, id %d\n", c.name, f.Kind, f.ID)
		switch f.Kind {
		case xprotocol.Request, xprotocol.OneWay:
			r := readRequest(t, c.frame)
			fmt.Fprintf(&got, "\t%s %s %s, one-way %v, content %d from %d, timeout %v\n", r.Authority, r.Path, r.Serialization, r.OneWay, r.ContentLength, r.view.Content, r.view.Timeout)
			fmt.Fprintf(&got, "\t%s\n", strings.ReplaceAll(fields(&r.Header), " ", "\n\t"))
		case xprotocol.Response:
			r := readResponse(t, c.frame)
			fmt.Fprintf(&got, "\tstatus %d, code %d, content %d\n", r.Status, r.Code, r.ContentLength)
			fmt.Fprintf(&got, "\t%s\n", strings.ReplaceAll(fields(&r.Header), " ", "\n\t"))
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the captures are read as\n%swant\n%s", &got, want)
	}
}

// Wherever a read ends, a frame is the same: unknown within its head, then of its
// size; and what follows it does not matter. Only which event it is shows at its
// end.
func TestFrameAtEverySplit(t *testing.T) {
	for _, c := range captures(t) {
		whole, err := Codec{}.Next(append(bytes.Clone(c.frame), 0xff))
		if err != nil {
			t.Fatal(err)
		}
		for n := range c.frame {
			f, err := Codec{}.Next(c.frame[:n])
			want := whole
			if n < headSize {
				want = xprotocol.Frame{}
			} else if whole.Kind == xprotocol.GoAway {
				want.Kind = f.Kind
			}
			if err != nil || f != want {
				t.Fatalf("%s: Next of %d bytes = %+v, %v, want %+v", c.name, n, f, err, want)
			}
		}
	}
}

func TestSizeIsAsDeclared(t *testing.T) {
	frame := frameOf(twoWay, 0)
	binary.BigEndian.PutUint32(frame[lengthAt:], 1<<32-1)
	f, err := Codec{}.Next(frame)
	if want := headSize + 1<<32 - 1; err != nil || f.Size != want {
		t.Errorf("Next = %+v, %v, want a size of %d", f, err, want)
	}
}

// Lesson 6: 32 bytes without the magic are an error at once, not a wait.
func TestOtherBytesAreAnError(t *testing.T) {
	for _, b := range []string{"G", "\xda\x00", strings.Repeat("x", 32), strings.Repeat("\x00", 32)} {
		if f, err := (Codec{}).Next([]byte(b)); err == nil || f.Size != 0 {
			t.Errorf("Next(%q) = %+v, %v, want an error", b, f, err)
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
		{"a request", frameOf(twoWay, 0), xprotocol.Request},
		{"a one-way request", frameOf(flagRequest|serializationHessian, 0), xprotocol.OneWay},
		{"an answer", frameOf(answer, 20), xprotocol.Response},
		{"an answer with the two-way bit", frameOf(answer|flagTwoWay, 20), xprotocol.Response},
		{"a heartbeat", frameOf(twoWay|flagEvent, 0, []byte("N")), xprotocol.Ping},
		{"a heartbeat without a body", frameOf(twoWay|flagEvent, 0), xprotocol.Ping},
		{"a heartbeat with two nulls", frameOf(twoWay|flagEvent, 0, []byte("NN")), xprotocol.Ping},
		{"a heartbeat that wants no answer", frameOf(event|serializationHessian, 0, []byte("N")), xprotocol.Ignored},
		{"an answer to a heartbeat", frameOf(answer|flagEvent, 20, []byte("NN")), xprotocol.Pong},
		{"read only", frameOf(event|serializationHessian, 0, texts("R")), xprotocol.GoAway},
		{"read only, in a long form", frameOf(event|serializationHessian, 0, []byte("S\x00\x01R")), xprotocol.GoAway},
		{"read only with the two-way bit", frameOf(twoWay|flagEvent, 0, texts("R")), xprotocol.GoAway},
		{"writable again", frameOf(event|serializationHessian, 0, texts("W")), xprotocol.Ignored},
		{"a part of a string, which begins with R", frameOf(twoWay|flagEvent, 0, []byte("R\x00\x01x")), xprotocol.Ping},
		{"an event that is too long to be one", frameOf(event|6, 0, []byte(strings.Repeat("R", 65))), xprotocol.Ignored},
		{"read only in fastjson", captured(t, "dubbo-2.7.23 fastjson R"), xprotocol.GoAway},
		{"null in fastjson", captured(t, "dubbo-2.7.23 fastjson heartbeat"), xprotocol.Ping},
		{"read only in nativejava", captured(t, "dubbo-2.7.23 nativejava R"), xprotocol.GoAway},
		{"read only in fastjson2", captured(t, "dubbo-3.3.5 fastjson2 R"), xprotocol.GoAway},
		{"writable again in fastjson2", captured(t, "dubbo-3.3.5 fastjson2 W"), xprotocol.Ignored},
		{"null in fastjson2", captured(t, "dubbo-3.3.5 fastjson2 heartbeat"), xprotocol.Ping},
	} {
		f, err := Codec{}.Next(c.frame)
		if err != nil || f.Kind != c.want || f.ID != 7 {
			t.Errorf("%s: Next = %+v, %v, want kind %d and id 7", c.name, f, err, c.want)
		}
	}
}

func TestSetIDChangesNothingElse(t *testing.T) {
	for _, c := range captures(t) {
		frame := bytes.Clone(c.frame)
		Codec{}.SetID(frame, 0x0102030405060708)
		if f, _ := (Codec{}).Next(frame); f.ID != 0x0102030405060708 {
			t.Errorf("%s: the id is %#x", c.name, f.ID)
		}
		f, _ := Codec{}.Next(c.frame)
		Codec{}.SetID(frame, f.ID)
		if !bytes.Equal(frame, c.frame) {
			t.Errorf("%s: more than the id changed", c.name)
		}
	}
}
