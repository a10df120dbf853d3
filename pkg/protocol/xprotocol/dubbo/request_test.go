package dubbo

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/hessian"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

const genericHead = "\x052.0.2\x01A\x051.0.0\x07$invoke" + "\x30\x38" + genericTypes

func TestReadRequest(t *testing.T) {
	head := slices.Clip(hessianStrings("2.0.2", "A", "1.0.0", "m", ""))
	nulls := append(append(hessianStrings("2.0.2", "A"), 'N'), hessianStrings("m", "")...)
	for _, c := range []struct {
		name   string
		body   []byte
		path   string
		fields string
	}{
		{"no attachments, an empty map", append(head, mapOf()...), "/A/m", "service=A method=m version=1.0.0"},
		{"no attachments, null", append(head, 'N'), "/A/m", "service=A method=m version=1.0.0"},
		{"no attachments, missing", head, "/A/m", "service=A method=m version=1.0.0"},
		{"no version", append(nulls, mapOf("k", "v")...), "/A/m", "service=A method=m k=v"},
		{"no types, null", append(append(hessianStrings("2.0.2", "A", "1.0.0", "m"), 'N'), mapOf("k", "v")...), "/A/m", "service=A method=m version=1.0.0 k=v"},
		{"an interface in addition to the path", append(head, mapOf("interface", "B", "path", "ctx/B")...), "/B/m", "service=B method=m version=1.0.0 interface=B path=ctx/B"},
		{"a path attachment only", append(head, mapOf("path", "B")...), "/B/m", "service=B method=m version=1.0.0 path=B"},
		{"an attachment overrides the version", append(head, mapOf("version", "2.0.0")...), "/A/m", "service=A method=m version=2.0.0"},
		{"a null attachment removes the version", append(head, "H\x07versionNZ"...), "/A/m", "service=A method=m"},
		{"a group", append(head, mapOf("a", "1", "group", "g", "b", "2")...), "/A/m", "service=A method=m version=1.0.0 group=g a=1 b=2"},
		{"the last of two groups", append(head, mapOf("group", "g", "group", "h")...), "/A/m", "service=A method=m version=1.0.0 group=h"},
		{"attachments with names of routing fields", append(head, mapOf("method", "x", "Service", "y", "GROUP", "z", "k", "v")...), "/A/m", "service=A method=m version=1.0.0 k=v"},
		{"scalars as text", append(head, "H\x01i\xd4\x75\x30\x01lL\x00\x00\x00\x10\x00\x00\x00\x00\x01bT\x01d\x5c\x01nN\x01s\x00Z"...), "/A/m", "service=A method=m version=1.0.0 i=30000 l=68719476736 b=true d=1 n= s="},
		{"values without text", append(head, "H\x01lV\x07[string\x91\x01a\x90\x91\x01d\x4b\x00\x00\x00\x00\x01k\x01vZ"...), "/A/m", "service=A method=m version=1.0.0 k=v"},
		{"a map by reference", append(hessianStrings("2.0.2", "A", "1.0.0", "m", "Ljava/util/Map;"), "H\x01k\x01vZQ\x90"...), "/A/m", "service=A method=m version=1.0.0 k=v"},
		{"unicode", append(hessianStrings("2.0.2", "服务", "1.0.0", "方法", ""), mapOf("ключ", "😀")...), "/服务/方法", "service=服务 method=方法 version=1.0.0 ключ=😀"},
		{"all types of arguments", append(hessianStrings("2.0.2", "A", "1.0.0", "m", "BCDFIJSZ[I[[Ljava/lang/String;LB;"), append([]byte("\x90\x90\x5b\x5b\x91\xe0\x92T\x71\x02[I\x90NN"), mapOf("k", "v")...)...), "/A/m", "service=A method=m version=1.0.0 k=v"},
		{"$echo", append(hessianStrings("2.0.2", "A", "1.0.0", "$echo", "Ljava/lang/Object;"), append([]byte("\x02ok"), mapOf("k", "v")...)...), "/A/$echo", "service=A method=$echo version=1.0.0 k=v"},
		{"generic call", append([]byte(genericHead), "\x01m\x70\x07[string\x70\x07[objectH\x07generic\x04trueZ"...), "/A/m", "service=A method=m version=1.0.0 generic=true"},
		{"generic call without a method", append([]byte(genericHead), "NNNH\x07generic\x04trueZ"...), "/A/$invoke", "service=A method=$invoke version=1.0.0 generic=true"},
		{"bytes after the attachments", append(append(head, mapOf("k", "v")...), "N!?"...), "/A/m", "service=A method=m version=1.0.0 k=v"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := readRequest(t, newFrame(twoWay, 0, c.body))
			if got := fields(&r.Header); got != c.fields || r.Path != c.path || r.Authority != r.Header.Get("service") || r.OneWay {
				t.Errorf("authority %q, path %q, fields %s\nwant path %q, fields %s", r.Authority, r.Path, got, c.path, c.fields)
			}
		})
	}
}

// TestOtherSerialization verifies that ReadRequest reads nothing from the body of a request in
// another serialization.
func TestOtherSerialization(t *testing.T) {
	for id, name := range map[byte]string{3: "java", 8: "kryo", 14: "14", 21: "protobuf-json", 23: "fastjson2", 27: "msgpack"} {
		frame := newFrame(flagRequest|id, 0, hessianStrings("2.0.2", "A", "1.0.0", "m", ""), mapOf("timeout", "5"))
		r := readRequest(t, frame)
		if r.Serialization != name || !r.OneWay || r.ContentLength != int64(len(frame)-headSize) ||
			r.Path != "/" || r.Authority != "" || r.Header.Len() != 0 || r.view.Timeout != 0 {
			t.Errorf("serialization %d: request %+v, want only the path /", id, r)
		}
	}
}

func TestMalformedRequest(t *testing.T) {
	head := hessianStrings("2.0.2", "A", "1.0.0", "m")
	for _, c := range []struct{ name, body, want string }{
		{"empty", "", "dubbo version"},
		{"map instead of the Dubbo version", "H", "dubbo version"},
		{"truncated path", "\x052.0.2\x05A", "path"},
		{"list instead of the service version", "\x052.0.2\x01A\x78", "version"},
		{"no method", "\x052.0.2\x01A\x051.0.0", "method"},
		{"no types", string(head), "types of arguments"},
		{"invalid types", string(head) + "\x03foo", "descriptor"},
		{"unterminated class name", string(head) + "\x06Ljava/", "descriptor"},
		{"array without an element type", string(head) + "\x01[", "descriptor"},
		{"missing argument", string(head) + "\x02II\x90", "argument 2 of 2"},
		{"an invalid argument", string(head) + "\x01I\x45", "argument 1 of 1"},
		{"string instead of attachments", string(head) + "\x00\x01k", "attachments"},
		{"unterminated attachments", string(head) + "\x00H\x01k\x01v", "attachments"},
		{"unterminated array type", string(head) + "\x01[\x57", "descriptor"},
		{"a declared length of 2 GB", string(head) + "\x02[IX\x49\x7f\xff\xff\xff", "argument 1 of 1"},
		{"too many attachments", string(head) + "\x00H" + strings.Repeat("\x01k\x01v", 1025) + "Z", "more than 1024"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r request
			err := Codec{}.ReadRequest(newFrame(twoWay, 0, []byte(c.body)), &r.Request, &r.view)
			var fault *protocol.Fault
			if !errors.As(err, &fault) || fault.Reason != protocol.MalformedRequest || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want MalformedRequest with %q", err, c.want)
			}
		})
	}
}

// TestLargeRequest verifies that ReadRequest accepts the maximum number of attachments, and
// arguments of many nested lists.
func TestLargeRequest(t *testing.T) {
	const depth = 10_000
	deep := bytes.Repeat([]byte{0x79}, depth)
	attachments := hessian.AppendMapStart(nil)
	for range maxAttachments {
		attachments = append(attachments, hessianStrings("k", "v")...)
	}
	body := append(hessianStrings("2.0.2", "A", "1.0.0", "m", "Ljava/util/List;"), deep...)
	body = append(append(body, 'N'), hessian.AppendMapEnd(attachments)...)
	if r := readRequest(t, newFrame(twoWay, 0, body)); r.Header.Len() != 3+maxAttachments {
		t.Errorf("%d fields, want %d", r.Header.Len(), 3+maxAttachments)
	}
}

// TestTruncatedRequest verifies that a request that is truncated anywhere is malformed, or has the
// same path and at most the four routing fields.
func TestTruncatedRequest(t *testing.T) {
	for _, c := range captures(t) {
		if c.frame[flagsOffset]&(flagRequest|flagEvent) != flagRequest {
			continue
		}
		full := readRequest(t, c.frame)
		for n := headSize; n < len(c.frame); n++ {
			var r request
			err := Codec{}.ReadRequest(c.frame[:n], &r.Request, &r.view)
			if err == nil && (r.Path != full.Path || r.Header.Len() > 4) {
				t.Errorf("%s: %d bytes of %d: path %s, fields %s; want an error, or the same path and at most 4 fields", c.name, n, len(c.frame), r.Path, fields(&r.Header))
			}
			if err != nil && protocol.ReasonOf(err) != protocol.MalformedRequest {
				t.Errorf("%s: %d bytes: %v, want MalformedRequest", c.name, n, err)
			}
		}
	}
}

func TestTimeout(t *testing.T) {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, c := range []struct {
		name        string
		attachments string
		want        time.Duration
		remaining   time.Duration
		lowered     string // attachments with the lowered timeout; "": unchanged
	}{
		{"a string", "H\x07timeout\x043000Z", ms(3000), ms(999), "H\x07timeout\x040999Z"},
		{"remaining time equals the timeout", "H\x07timeout\x043000Z", ms(3000), ms(3000), ""},
		{"remaining time above the timeout", "H\x07timeout\x043000Z", ms(3000), time.Hour, ""},
		{"unknown remaining time", "H\x07timeout\x043000Z", ms(3000), 0, ""},
		{"less than 1 ms becomes 1 ms", "H\x07timeout\x043000Z", ms(3000), 1, "H\x07timeout\x040001Z"},
		{"fractions of a ms are dropped", "H\x07timeout\x043000Z", ms(3000), ms(10) + 999*time.Microsecond, "H\x07timeout\x040010Z"},
		{"an int of one byte", "H\x07timeout\xbfZ", ms(47), ms(5), "H\x07timeout\x95Z"},
		{"an int of two bytes", "H\x07timeout\xcb\xe8Z", ms(1000), ms(300), "H\x07timeout\xc9\x2cZ"},
		{"an int of three bytes", "H\x07timeout\xd4\x75\x30Z", ms(30000), ms(300), "H\x07timeout\xd4\x01\x2cZ"},
		{"an int of five bytes", "H\x07timeoutI\x00\x98\x96\x80Z", ms(10000000), ms(300), "H\x07timeoutI\x00\x00\x01\x2cZ"},
		{"a long of one byte", "H\x07timeout\xefZ", ms(15), ms(5), "H\x07timeout\xe5Z"},
		{"a long of two bytes", "H\x07timeout\xfb\xe8Z", ms(1000), ms(300), "H\x07timeout\xf9\x2cZ"},
		{"a long of three bytes", "H\x07timeout\x3c\x75\x30Z", ms(30000), ms(300), "H\x07timeout\x3c\x01\x2cZ"},
		{"a long of five bytes", "H\x07timeoutY\x00\x98\x96\x80Z", ms(10000000), ms(300), "H\x07timeoutY\x00\x00\x01\x2cZ"},
		{"a long of nine bytes", "H\x07timeoutL\x00\x00\x00\x00\x00\x98\x96\x80Z", ms(10000000), ms(300), "H\x07timeoutL\x00\x00\x00\x00\x00\x00\x01\x2cZ"},
		{"a string in a long form", "H\x07timeoutS\x00\x043000Z", ms(3000), ms(12), "H\x07timeoutS\x00\x040012Z"},
		{"a chunked string is not a timeout", "H\x07timeoutR\x00\x013\x03000Z", 0, ms(12), ""},
		{"zero is not a timeout", "H\x07timeout\x010Z", 0, ms(12), ""},
		{"a negative number is not a timeout", "H\x07timeout\x02-1Z", 0, ms(12), ""},
		{"a word is not a timeout", "H\x07timeout\x03oneZ", 0, ms(12), ""},
		{"an empty value is not a timeout", "H\x07timeout\x00Z", 0, ms(12), ""},
		{"a bool is not a timeout", "H\x07timeoutTZ", 0, ms(12), ""},
		{"the Java maximum", "H\x07timeout\x0a2147483647Z", ms(2147483647), ms(1), "H\x07timeout\x0a0000000001Z"},
		{"more than the Java maximum is not a timeout", "H\x07timeout\x0a2147483648Z", 0, ms(1), ""},
		{"much more than the Java maximum is not a timeout", "H\x07timeout\x1a99999999999999999999999999Z", 0, ms(1), ""},
		{"a long above the Java maximum", "H\x07timeoutL\x00\x00\x00\x01\x00\x00\x00\x00Z", 0, ms(1), ""},
		{"call timeout first", "H\x03_TO\xcb\xe8\x07timeout\x043000Z", ms(1000), ms(999), "H\x03_TO\xcb\xe7\x07timeout\x040999Z"},
		{"call timeout last", "H\x07timeout\x03500\x03_to\x041000Z", ms(1000), ms(600), "H\x07timeout\x03500\x03_to\x040600Z"},
		{"another case", "H\x07Timeout\x043000Z", 0, ms(1), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			frame := requestOf([]byte(c.attachments))
			r := readRequest(t, frame)
			if r.view.Timeout != c.want {
				t.Errorf("timeout %v, want %v", r.view.Timeout, c.want)
			}
			got, err := Codec{}.AppendRequest(nil, frame, &r.Request, &r.view, c.remaining)
			want := frame
			if c.lowered != "" {
				want = requestOf([]byte(c.lowered))
			}
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("appended as %q, %v\nwant %q", got[headSize:], err, want[headSize:])
			}
			// AppendRequest must lower the timeout of a changed request too.
			r.Header.Add("new", "field")
			got, err = Codec{}.AppendRequest(nil, frame, &r.Request, &r.view, c.remaining)
			want = append(bytes.Clone(want[:len(want)-1]), "\x03new\x05fieldZ"...)
			want = patchBodyLength(want, 0)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("with a field appended as %q, %v\nwant %q", got[headSize:], err, want[headSize:])
			}
		})
	}
}

// TestTimeoutInArgument verifies that attachments that are also an argument stay unchanged.
func TestTimeoutInArgument(t *testing.T) {
	frame := newFrame(twoWay, 0, hessianStrings("2.0.2", "A", "1.0.0", "m", "Ljava/util/Map;"), []byte("H\x07timeout\x043000ZQ\x90"))
	r := readRequest(t, frame)
	got, err := Codec{}.AppendRequest(nil, frame, &r.Request, &r.view, time.Millisecond)
	if err != nil || !bytes.Equal(got, frame) || r.view.Timeout != 3*time.Second {
		t.Errorf("AppendRequest = %q, %v with a timeout of %v; want the same frame with 3s", got, err, r.view.Timeout)
	}
}

// TestReusedView verifies that a reused view contains only values of the last frame.
func TestReusedView(t *testing.T) {
	var r request
	for _, frame := range [][]byte{
		requestOf(mapOf("timeout", "3000")), requestOf(mapOf("k", "v")), newFrame(flagRequest|3, 0),
	} {
		r.Request = protocol.Request{}
		if err := (Codec{}).ReadRequest(frame, &r.Request, &r.view); err != nil {
			t.Fatal(err)
		}
	}
	if r.view.Timeout != 0 || r.view.Offsets != (xprotocol.FrameView{}).Offsets {
		t.Errorf("view %+v, want no timeout and no offsets", r.view)
	}
}

func TestAmbiguousCalls(t *testing.T) {
	head := slices.Clip(hessianStrings("2.0.2", "A", "1.0.0", "m", ""))
	generic := func(types string) []byte {
		return append(hessianStrings("2.0.2", "A", "1.0.0", "$invoke", types), append(hessianStrings("m"), "NNN"...)...)
	}
	for _, c := range []struct {
		name      string
		body      []byte
		ambiguous bool
	}{
		{"one service", append(head, mapOf("path", "A", "interface", "A")...), false},
		{"one service, only in the body", head, false},
		{"a path with a context", append(hessianStrings("2.0.2", "shop/A", "1.0.0", "m", ""), mapOf("path", "shop/A", "interface", "A")...), false},
		{"an interface that differs from the body's path", append(head, mapOf("interface", "B")...), true},
		{"an interface that differs from the path attachment", append(head, mapOf("interface", "B", "path", "A")...), true},
		{"a path attachment that differs from the body's path", append(head, mapOf("path", "B")...), true},
		{"an interface that is a suffix of the path", append(hessianStrings("2.0.2", "AB", "1.0.0", "m", ""), mapOf("interface", "B")...), true},
		{"a generic call", []byte(genericHead + "\x01mNNN"), false},
		{"a generic call without a method", []byte(genericHead + "NNNN"), true},
		{"a generic call of other types", generic("Ljava/lang/Object;[Ljava/lang/String;[Ljava/lang/Object;"), true},
	} {
		if r := readRequest(t, newFrame(twoWay, 0, c.body)); r.view.Ambiguous != c.ambiguous {
			t.Errorf("%s: Ambiguous = %t, want %t", c.name, r.view.Ambiguous, c.ambiguous)
		}
	}
	var r request
	for _, body := range [][]byte{append(head, mapOf("interface", "B")...), head} {
		r.Request = protocol.Request{}
		if err := (Codec{}).ReadRequest(newFrame(twoWay, 0, body), &r.Request, &r.view); err != nil {
			t.Fatal(err)
		}
	}
	if r.view.Ambiguous {
		t.Error("a reused view keeps Ambiguous of the previous request")
	}
}
