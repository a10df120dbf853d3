package bolt

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol/codectest"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func FuzzV1(f *testing.F) { fuzz(f, "v1") }
func FuzzV2(f *testing.F) { fuzz(f, "v2") }

func fuzz(f *testing.F, version string) {
	f.Helper()
	c := codecs()[version]
	var seeds [][]byte
	for _, frames := range []map[string][]byte{captures(f, version), builtFrames(c)} {
		for _, name := range sortedKeys(frames) {
			seeds = append(seeds, frames[name])
		}
	}
	codectest.Fuzz(f, c, seeds)
}

// TestNegativeLengthsAreRejected verifies that a length with the sign bit is an error, because
// peers store lengths in signed integers.
func TestNegativeLengthsAreRejected(t *testing.T) {
	for version, c := range codecs() {
		for frameType, size := range map[byte]int{typeRequest: c.requestHeadSize, typeResponse: c.responseHeadSize} {
			for name, offset := range map[string]int{"class": size - 8, "header": size - 6, "content": size - 4} {
				frame := newFrame(c, frameType, commandRequest, 0, "", nil, "")
				frame[offset] = 0x7f
				if _, err := c.ParseFrame(frame); err != nil {
					t.Errorf("%s: maximum length of the %s: %v, want no error", version, name, err)
				}
				frame[offset] = 0x80
				if _, err := c.ParseFrame(frame); err == nil {
					t.Errorf("%s: %s: a length with the sign bit was accepted", version, name)
				}
			}
		}
	}
}

// TestChecksumFlag verifies that a frame has a checksum only if the second byte is 2.
func TestChecksumFlag(t *testing.T) {
	c := V2()
	frame := newFrame(c, typeRequest, commandRequest, 0, "c", entries("service", "s"), "content")
	frame[c.switchesOffset] = checksumBit
	if head, err := c.ParseFrame(frame); err != nil || head.Size != len(frame) {
		t.Errorf("second byte 1: %d bytes, %v; want %d", head.Size, err, len(frame))
	}
	frame[1] = withChecksums
	if head, err := c.ParseFrame(frame); err != nil || head.Size != len(frame)+4 {
		t.Errorf("second byte 2: %d bytes, %v; want %d", head.Size, err, len(frame)+4)
	}
}

func TestDamagedFrameIsRejected(t *testing.T) {
	c := V2()
	for name, frame := range captures(t, "v2") {
		if c.checksumSize(frame) == 0 {
			continue
		}
		head, _ := c.ParseFrame(frame)
		for i := c.switchesOffset + 1; i < len(frame); i++ {
			damaged := bytes.Clone(frame)
			damaged[i] ^= 4
			if damagedHead, err := c.ParseFrame(damaged); err != nil || damagedHead.Size != head.Size {
				continue // the byte belongs to a length, and the size of the frame changes
			}
			var err error
			var v xprotocol.FrameView
			switch head.Kind {
			case xprotocol.Request:
				err = c.ReadRequest(damaged, new(protocol.Request), &v)
			case xprotocol.Response:
				err = c.ReadResponse(damaged, new(protocol.Response), &v)
			default:
				continue
			}
			if err == nil {
				t.Fatalf("%s: the corrupted byte %d was not detected", name, i)
			}
		}
	}
}

// TestServiceAndMethodChangeInEveryEntry verifies changes of entries that SOFARPC repeats, and of
// the version, which is a part of the service.
func TestServiceAndMethodChangeInEveryEntry(t *testing.T) {
	tests := []struct {
		name   string
		header []byte
		field  string
		value  string
		want   []byte
	}{
		{"service", entries("service", "a:1", keyTarget, "a:1"), "service", "b:1", entries("service", "b:1", keyTarget, "b:1")},
		{"service in one entry", entries("service", "a"), "service", "b", entries("service", "b")},
		{"new service", entries("k", "v"), "service", "b", entries("k", "v", "service", "b")},
		{"method", entries("service", "a", keyMethod, "m"), "method", "n", entries("service", "a", keyMethod, "n")},
		{"new method", entries("service", "a"), "method", "n", entries("service", "a", keyMethod, "n")},
		{"version", entries("service", "a:1.0"), "version", "2.0", entries("service", "a:2.0")},
		{"version before a unique id", entries("service", "a:1.0:u"), "version", "2.0", entries("service", "a:2.0:u")},
		{"new version", entries("service", "a"), "version", "2.0", entries("service", "a:2.0")},
		{"group", entries("service", "a"), "group", "g", entries("service", "a", "group", "g")},
		{"SOFARPC entry by its name", entries("service", "a", keyTarget, "b"), keyTarget, "c", entries("service", "a", keyTarget, "c")},
	}
	for version, c := range codecs() {
		for _, tt := range tests {
			t.Run(version+"/"+tt.name, func(t *testing.T) {
				frame := newFrame(c, typeRequest, commandRequest, 0, "class", tt.header, "content")
				var r protocol.Request
				var v xprotocol.FrameView
				if err := c.ReadRequest(frame, &r, &v); err != nil {
					t.Fatal(err)
				}
				r.Header.Set(tt.field, tt.value)
				got, err := c.AppendRequest(nil, frame, &r, &v, 0)
				want := newFrame(c, typeRequest, commandRequest, 0, "class", tt.want, "content")
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%v\n got %q\nwant %q", err, got, want)
				}
			})
		}
	}
}

// TestVersionWithoutServiceIsRejected verifies that a version without a service is an error,
// because the version is a part of the service, and that a version with a colon is an error.
func TestVersionWithoutServiceIsRejected(t *testing.T) {
	tests := []struct {
		name         string
		header       []byte
		field, value string
		version      string
		want         protocol.Reason
	}{
		{name: "without a service", header: entries("k", "v"), version: "2", want: protocol.MalformedRequest},
		{name: "with a colon", header: entries("service", "a"), version: "2:u", want: protocol.MalformedRequest},
		{name: "no version without a service", header: entries("k", "v"), version: ""},
		{name: "with a new service", header: entries("k", "v"), field: "service", value: "b", version: "2"},
	}
	for version, c := range codecs() {
		for _, tt := range tests {
			frame := newFrame(c, typeRequest, commandRequest, 0, "class", tt.header, "content")
			var r protocol.Request
			var v xprotocol.FrameView
			if err := c.ReadRequest(frame, &r, &v); err != nil {
				t.Fatal(err)
			}
			if tt.field != "" {
				r.Header.Set(tt.field, tt.value)
			}
			r.Header.Set(xprotocol.FieldVersion, tt.version)
			dst, err := c.AppendRequest([]byte("before"), frame, &r, &v, 0)
			switch {
			case tt.want == protocol.ReasonNone && err != nil:
				t.Errorf("%s, %s: %v, want no error", version, tt.name, err)
			case tt.want != protocol.ReasonNone && (protocol.ReasonOf(err) != tt.want || string(dst) != "before"):
				t.Errorf("%s, %s: %v and %q, want the reason %v and nothing appended", version, tt.name, err, dst, tt.want)
			}
		}
	}
}

func TestHeaderTooLong(t *testing.T) {
	c := V1()
	frame := newFrame(c, typeRequest, commandRequest, 0, "class", entries("service", "s"), "content")
	var r protocol.Request
	var v xprotocol.FrameView
	if err := c.ReadRequest(frame, &r, &v); err != nil {
		t.Fatal(err)
	}
	r.Header.Add("k", strings.Repeat("x", 1<<15))
	dst, err := c.AppendRequest([]byte("before"), frame, &r, &v, 0)
	if protocol.ReasonOf(err) != protocol.HeaderTooLarge || string(dst) != "before" {
		t.Errorf("error %v with %d bytes, want HeaderTooLarge with dst unchanged", err, len(dst))
	}
}

func TestErrorTextIsLimited(t *testing.T) {
	for version, c := range codecs() {
		request := c.AppendHeartbeat(nil, 5)
		for name, text := range map[string]string{
			"long": strings.Repeat("ä", maxErrorText), "not UTF-8": "a\xffb", "none": "",
		} {
			frame := c.AppendErrorResponse(nil, request, protocol.ReasonNoRoute, text)
			var r protocol.Response
			var v xprotocol.FrameView
			if err := c.ReadResponse(frame, &r, &v); err != nil {
				t.Fatal(err)
			}
			got := r.Header.Get(keyErrorText)
			if len(got) > maxErrorText || strings.ContainsRune(got, '\uFFFD') || text != "" && got == "" {
				t.Errorf("%s, %s: error text of %d bytes, %.20q; want at most %d bytes of valid UTF-8", version, name, len(got), got, maxErrorText)
			}
		}
	}
}

// TestErrorResponseContainsException compares the content with the bytes that Java (1.6.12) and
// Node clients of SOFA have read, in their draft of Hessian 2.
func TestErrorResponseContainsException(t *testing.T) {
	const want = "O\xc8\x34com.alipay.remoting.rpc.exception.RpcServerException" +
		"\x92\x0ddetailMessage\x0astackTrace" + "o\x90" +
		"S\x00\x07no ä€\xed\xa0\xbd\xed\xb8\x80" +
		"Vt\x00\x1c[java.lang.StackTraceElementl\x00\x00\x00\x00z"
	for version, c := range codecs() {
		request := newFrame(c, typeRequest, commandRequest, 0, "class", entries("service", "s"), "content")
		for code, content := range map[byte]string{hessian2: want, 11: "", 12: ""} {
			request[c.serializationOffset] = code
			for _, reason := range []protocol.Reason{protocol.ReasonNoRoute, protocol.ReasonDenied} {
				frame := c.AppendErrorResponse(nil, request, reason, "no ä€😀")
				var r protocol.Response
				var v xprotocol.FrameView
				if err := c.ReadResponse(frame, &r, &v); err != nil {
					t.Fatal(err)
				}
				if got := string(frame[v.ContentOffset:]); got != content {
					t.Errorf("%s, serialization %d, %v:\n got %q\nwant %q", version, code, reason, got, content)
				}
				if got := r.Header.Get(keyErrorText); got != "no ä€😀" {
					t.Errorf("%s, serialization %d, %v: the header has %q, want the error text", version, code, reason, got)
				}
				class, _, _ := c.lengths(frame)
				if name := string(frame[c.responseHeadSize:][:class]); (name == exceptionClass) != (content != "") {
					t.Errorf("%s, serialization %d, %v: class %q, want exceptionClass only with an exception in the content", version, code, reason, name)
				}
			}
		}
	}
}

func BenchmarkForward(b *testing.B) {
	for _, version := range []string{"v1", "v2"} {
		c := codecs()[version]
		b.Run(version, func(b *testing.B) {
			frame := builtFrames(c)["SOFARPC"]
			var r protocol.Request
			var m xprotocol.Message
			dst := make([]byte, 0, 1<<10)
			b.ReportAllocs()
			for b.Loop() {
				r.Header.Reset()
				if err := c.ReadRequest(frame, &r, &m.View); err != nil {
					b.Fatal(err)
				}
				out, err := c.AppendRequest(dst, frame, &r, &m.View, 0)
				if err != nil {
					b.Fatal(err)
				}
				c.SetID(out, 5)
			}
		})
	}
}

// BenchmarkForwardChanged reads a request of 16 KiB with a checksum, changes its version and its
// timeout, and sets its ID. One pass over the frame verifies the checksum, and one computes the
// new checksum.
func BenchmarkForwardChanged(b *testing.B) {
	c := V2()
	frame := addChecksum(c, newFrame(c, typeRequest, commandRequest, 0, "class", entries("service", "s:1.0", keyMethod, "m"), strings.Repeat("x", 16<<10)))
	var r protocol.Request
	var m xprotocol.Message
	dst := make([]byte, 0, 32<<10)
	b.ReportAllocs()
	b.SetBytes(int64(len(frame)))
	for b.Loop() {
		r.Header.Reset()
		if err := c.ReadRequest(frame, &r, &m.View); err != nil {
			b.Fatal(err)
		}
		r.Header.Set(xprotocol.FieldVersion, "2.0")
		out, err := c.AppendRequest(dst, frame, &r, &m.View, time.Millisecond)
		if err != nil {
			b.Fatal(err)
		}
		c.SetID(out, 5)
	}
}

func addChecksum(c Codec, frame []byte) []byte {
	frame[1] = withChecksums
	frame[c.switchesOffset] |= checksumBit
	return c.appendChecksum(frame, 0)
}
