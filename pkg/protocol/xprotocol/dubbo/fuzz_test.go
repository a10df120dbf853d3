package dubbo

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol/codectest"
)

// FuzzCodec verifies the codec contract for any bytes. In addition, a changed field must not change
// other fields, and timeouts must be lowered if possible.
func FuzzCodec(f *testing.F) {
	for _, c := range captures(f) {
		f.Add(c.frame, "k", "v")
	}
	for _, body := range [][]byte{
		slices.Concat(texts("2.0.2", "A", "1.0.0", "m", "Ljava/util/Map;"), []byte("H\x01k\x01v\x03_TO\xcb\xe8ZQ\x90")),
		slices.Concat(texts("2.0.2", "ctx/A", "1.0.0", "m", "[[IJ"), []byte("N\xe0M\x01t\x09interface\x01A\x05group\x01g\x91\x01y\x01rQ\x91\x04nullNZN")),
		slices.Concat([]byte(genericHead), []byte("\x01mNNH\x07timeout\xd4\x75\x30Z")),
	} {
		f.Add(frameOf(twoWay, 0, body), "service", "B")
		f.Add(frameOf(twoWay, 0, body), "method", "n")
		f.Add(frameOf(twoWay, 0, body), "group", "h")
		f.Add(frameOf(twoWay, 0, body), "timeout", "100")
	}
	f.Fuzz(func(t *testing.T, b []byte, name, value string) {
		codectest.Invariants(t, Codec{}, b, name, value)
		frame, err := Codec{}.ParseFrame(b)
		if (err != nil) != ((Codec{}).Match(b) == xprotocol.MatchNo) {
			t.Fatalf("Match and Next are not of one mind: %v", err)
		}
		if frame.Size == 0 {
			return
		}
		b = patchBodyLength(bytes.Clone(b), 0) // most frames would be truncated or incomplete
		codectest.Invariants(t, Codec{}, b, name, value)
		value = string([]rune(value)) // invalid UTF-8 is not preserved
		name = string([]rune(name))
		switch frame.Kind {
		case xprotocol.Request, xprotocol.OneWay:
			fuzzRequest(t, b, name, value)
		case xprotocol.Response:
			fuzzResponse(t, b, name, value)
		}
	})
}

func fuzzRequest(t *testing.T, frame []byte, name, value string) {
	var r, again request
	if (Codec{}).ReadRequest(frame, &r.Request, &r.view) != nil {
		return
	}
	out, err := Codec{}.AppendRequest(nil, frame, &r.Request, &r.view, 7*time.Millisecond)
	if err != nil || len(out) != len(frame) {
		t.Fatalf("with less time leaves as %x, %v", out, err)
	}
	checkTimeout(t, &r, out)

	r.Header.Set(name, value)
	if r.Header.Len() > maxAttachments || !r.Header.Changed() {
		return
	}
	out, err = Codec{}.AppendRequest(nil, frame, &r.Request, &r.view, 0)
	if !isHessian(frame) || r.Header.Get("service") == "" || r.Header.Get("method") == "" {
		if err == nil && !isHessian(frame) {
			t.Fatalf("a foreign body was changed: %x", out)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := (Codec{}).ReadRequest(out, &again.Request, &again.view); err != nil {
		t.Fatalf("changed, it cannot be read: %v", err)
	}
	if !isRouting(name) && fields(&again.Header) != fields(&r.Header) {
		t.Fatalf("read as %s\nwant %s", fields(&again.Header), fields(&r.Header))
	}
}

// checkTimeout fails t unless every timeout in a frame that can be lowered is 7 ms.
func checkTimeout(t *testing.T, was *request, frame []byte) {
	if was.view.Offsets == [6]int32{} {
		return
	}
	var r request
	if err := (Codec{}).ReadRequest(frame, &r.Request, &r.view); err != nil {
		t.Fatalf("with less time, it cannot be read: %v", err)
	}
	if r.view.Timeout > was.view.Timeout {
		t.Fatalf("the timeout was %v and is %v", was.view.Timeout, r.view.Timeout)
	}
	for _, mark := range [...]int{markOfCall, markOfService} {
		from, to := r.view.Offsets[mark], r.view.Offsets[mark+1]
		if from != was.view.Offsets[mark] || to != was.view.Offsets[mark+1] {
			t.Fatal("a timeout has moved")
		}
		if to == 0 || was.view.Timeout <= 7*time.Millisecond {
			continue
		}
		if ms, _ := parseTimeout(frame[from:to]); ms > 7 {
			t.Fatalf("%d ms are left of the 7", ms)
		}
	}
}

func fuzzResponse(t *testing.T, frame []byte, name, value string) {
	var r, again protocol.Response
	var v xprotocol.FrameView
	if (Codec{}).ReadResponse(frame, &r, &v) != nil {
		return
	}
	r.Header.Set(name, value)
	if r.Header.Len() > maxAttachments || !r.Header.Changed() || !isHessian(frame) || frame[statusAt] != statusOK {
		return
	}
	out, err := Codec{}.AppendResponse(nil, frame, &r, &v)
	if err != nil {
		if protocol.ReasonOf(err) != protocol.UpstreamMalformed {
			t.Fatal(err)
		}
		return // the codec may forward the value without reading it
	}
	if err := (Codec{}).ReadResponse(out, &again, &v); err != nil {
		t.Fatalf("changed, it cannot be read: %v", err)
	}
	if fields(&again.Header) != fields(&r.Header) {
		t.Fatalf("read as %s\nwant %s", fields(&again.Header), fields(&r.Header))
	}
}
