package dubbo

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// interopCases are changes of captured frames. testdata/judged.tsv records how other
// implementations read the changed frames.
var interopCases = []struct {
	name      string
	capture   string // prefix of the name of the capture
	change    func(h *protocol.Header)
	remaining time.Duration
}{
	{"request as it is", "dubbo-2.7.23 request string", func(*protocol.Header) {}, 0},
	{"request with less time", "dubbo-2.7.23 request string", func(*protocol.Header) {}, 50 * time.Millisecond},
	{"request with less time in a number", "dubbo-2.7.23 request object attachments", func(*protocol.Header) {}, 50 * time.Millisecond},
	{"request with fields added, set and removed", "dubbo-2.7.23 request string", func(h *protocol.Header) {
		h.Add("x-trace", "t-42")
		h.Add("empty", "")
		h.Add("ключ", "中😀")
		h.Set("group", "h")
		h.Del("timeout")
	}, 0},
	{"request for another service", "dubbo-2.7.23 request string", func(h *protocol.Header) {
		h.Set("service", "org.example.Longer")
		h.Set("version", "2")
		h.Set("method", "other")
	}, 0},
	{"request without version and group", "dubbo-2.7.23 request string", func(h *protocol.Header) { h.Del("version"); h.Del("group") }, 0},
	{"request with a first version and group", "dubbo-2.7.23 request without version", func(h *protocol.Header) {
		h.Set("version", "1")
		h.Set("group", "g")
	}, 0},
	{"request with objects for attachments", "dubbo-2.7.23 request object attachments", func(h *protocol.Header) {
		h.Set("k", "w")
		h.Set("yes", "false")
		h.Del("interface")
		h.Add("new", "1")
	}, 50 * time.Millisecond},
	{"request with an attachment that refers to an argument", "dubbo-2.7.23 request object that an attachment refers to", func(h *protocol.Header) {
		h.Del("k")
		h.Set("service", "org.example.Longer")
		h.Add("new", "1")
	}, 0},
	{"request of another generic method", "dubbo-2.7.23 request generic", func(h *protocol.Header) { h.Set("method", "other") }, 0},
	{"request in unicode", "dubbo-2.7.23 request unicode", func(h *protocol.Header) { h.Set("中", "文😀"); h.Set("method", "方法") }, 0},
	{"request of dubbo-go", "05-request-pojo-call", func(h *protocol.Header) { h.Add("k", "v") }, 50 * time.Millisecond},

	{"answer with a value", "dubbo-2.7.23 answer value", func(h *protocol.Header) { h.Set("trace", "t-43"); h.Add("k", "v") }, 0},
	{"answer with a value, first attachments", "dubbo-2.7.23 answer value without", func(h *protocol.Header) { h.Add("k", "v") }, 0},
	{"answer with null, no more attachments", "dubbo-2.7.23 answer null", func(h *protocol.Header) { h.Del("trace"); h.Del("dubbo") }, 0},
	{"answer with null, first attachments", "dubbo-2.7.23 answer null without", func(h *protocol.Header) { h.Add("k", "v") }, 0},
	{"answer with an exception", "dubbo-2.7.23 answer exception", func(h *protocol.Header) { h.Add("k", "v") }, 0},
	{"answer with an exception, first attachments", "dubbo-2.7.23 answer exception without", func(h *protocol.Header) { h.Add("k", "v") }, 0},
	{"answer with an object", "dubbo-2.7.23 answer object", func(h *protocol.Header) { h.Add("k", "v") }, 0},
	{"answer of dubbo-go", "02-response-value", func(h *protocol.Header) { h.Add("k", "v") }, 0},
}

// TestInteropFrames verifies that the changed frames are those that other implementations have
// read. If a frame changes, run these implementations again: -update writes the frame without their
// results.
func TestInteropFrames(t *testing.T) {
	recorded := map[string][]string{}
	for _, columns := range readTable(t, "judged.tsv") {
		recorded[columns[0]] = columns[1:]
	}
	var lines strings.Builder
	for _, comment := range readComments(t, "judged.tsv") {
		lines.WriteString(comment)
	}
	check := func(name string, frame []byte) {
		got := fmt.Sprintf("%x", frame)
		v := recorded[name]
		if len(v) != 3 || v[0] != got {
			t.Errorf("%s is %s, want a frame that other implementations have read", name, got)
			v = []string{got}
		}
		delete(recorded, name)
		fmt.Fprintf(&lines, "%s\t%s\n", name, strings.Join(v, "\t"))
	}
	for _, c := range interopCases {
		frame := findCapture(t, c.capture)
		var out []byte
		var err error
		if f, _ := (Codec{}).ParseFrame(frame); f.Kind == xprotocol.Response {
			r := readResponse(t, frame)
			c.change(&r.Header)
			out, err = Codec{}.AppendResponse(nil, frame, r, &xprotocol.FrameView{})
		} else {
			r := readRequest(t, frame)
			c.change(&r.Header)
			out, err = Codec{}.AppendRequest(nil, frame, &r.Request, &r.view, c.remaining)
		}
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		check(c.name, out)
	}
	check("fault", Codec{}.AppendErrorResponse(nil, findCapture(t, "01"), protocol.NoHealthyHost, "what 是 wrong 😀"))
	for name := range recorded {
		t.Errorf("testdata/judged.tsv has %s, which is not an interop case", name)
	}
	if *update {
		if err := os.WriteFile("testdata/judged.tsv", []byte(lines.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
