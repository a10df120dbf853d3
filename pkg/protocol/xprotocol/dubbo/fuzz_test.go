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

// FuzzCodec verifies the codec contract for any bytes. In addition, it verifies that a change of a
// field does not change other fields, and that AppendRequest lowers timeouts where possible.
func FuzzCodec(f *testing.F) {
	for _, c := range captures(f) {
		f.Add(c.frame, "k", "v")
	}
	for _, body := range [][]byte{
		slices.Concat(hessianStrings("2.0.2", "A", "1.0.0", "m", "Ljava/util/Map;"), []byte("H\x01k\x01v\x03_TO\xcb\xe8ZQ\x90")),
		slices.Concat(hessianStrings("2.0.2", "ctx/A", "1.0.0", "m", "[[IJ"), []byte("N\xe0M\x01t\x09interface\x01A\x05group\x01g\x91\x01y\x01rQ\x91\x04nullNZN")),
		slices.Concat([]byte(genericHead), []byte("\x01mNNH\x07timeout\xd4\x75\x30Z")),
	} {
		f.Add(newFrame(twoWay, 0, body), "service", "B")
		f.Add(newFrame(twoWay, 0, body), "method", "n")
		f.Add(newFrame(twoWay, 0, body), "group", "h")
		f.Add(newFrame(twoWay, 0, body), "timeout", "100")
	}
	f.Fuzz(func(t *testing.T, b []byte, name, value string) {
		codectest.CheckInvariants(t, Codec{}, b, name, value)
		frame, err := Codec{}.ParseFrame(b)
		if (err != nil) != ((Codec{}).Match(b) == xprotocol.MatchNo) {
			t.Fatalf("ParseFrame: %v, want an error exactly if Match returns MatchNo", err)
		}
		if frame.Size == 0 {
			return
		}
		b = patchBodyLength(bytes.Clone(b), 0) // otherwise most frames would be truncated or incomplete
		codectest.CheckInvariants(t, Codec{}, b, name, value)
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
	var r, reread request
	if (Codec{}).ReadRequest(frame, &r.Request, &r.view) != nil {
		return
	}
	out, err := Codec{}.AppendRequest(nil, frame, &r.Request, &r.view, 7*time.Millisecond)
	if err != nil || len(out) != len(frame) {
		t.Fatalf("AppendRequest with 7 ms = %x, %v; want a frame of the same size", out, err)
	}
	checkLowered(t, &r, out)

	r.Header.Set(name, value)
	if r.Header.Len() > maxAttachments || !r.Header.Changed() {
		return
	}
	out, err = Codec{}.AppendRequest(nil, frame, &r.Request, &r.view, 0)
	if !isHessian(frame) || r.Header.Get("service") == "" || r.Header.Get("method") == "" {
		if err == nil && !isHessian(frame) {
			t.Fatalf("AppendRequest changed a body in another serialization to %x, want an error", out)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := (Codec{}).ReadRequest(out, &reread.Request, &reread.view); err != nil {
		t.Fatalf("reading the changed frame: %v", err)
	}
	if !isRouting(name) && fields(&reread.Header) != fields(&r.Header) {
		t.Fatalf("fields %s\nwant %s", fields(&reread.Header), fields(&r.Header))
	}
}

// checkLowered fails t if a timeout in frame could be lowered to 7 ms and was not.
func checkLowered(t *testing.T, original *request, frame []byte) {
	if original.view.Offsets == [6]int32{} {
		return
	}
	var r request
	if err := (Codec{}).ReadRequest(frame, &r.Request, &r.view); err != nil {
		t.Fatalf("reading the frame with the lowered timeout: %v", err)
	}
	if r.view.Timeout > original.view.Timeout {
		t.Fatalf("the timeout was raised from %v to %v", original.view.Timeout, r.view.Timeout)
	}
	for _, index := range [...]int{callTimeoutIndex, serviceTimeoutIndex} {
		from, to := r.view.Offsets[index], r.view.Offsets[index+1]
		if from != original.view.Offsets[index] || to != original.view.Offsets[index+1] {
			t.Fatal("the offsets of a timeout changed")
		}
		if to == 0 || original.view.Timeout <= 7*time.Millisecond {
			continue
		}
		if ms, _ := parseTimeout(frame[from:to]); ms > 7 {
			t.Fatalf("timeout %d ms, want at most 7 ms", ms)
		}
	}
}

func fuzzResponse(t *testing.T, frame []byte, name, value string) {
	var r, reread protocol.Response
	var v xprotocol.FrameView
	if (Codec{}).ReadResponse(frame, &r, &v) != nil {
		return
	}
	r.Header.Set(name, value)
	if r.Header.Len() > maxAttachments || !r.Header.Changed() || !isHessian(frame) || frame[statusOffset] != statusOK {
		return
	}
	out, err := Codec{}.AppendResponse(nil, frame, &r, &v)
	if err != nil {
		if protocol.ReasonOf(err) != protocol.UpstreamMalformed {
			t.Fatal(err)
		}
		return // the codec may forward the value without reading it
	}
	if err := (Codec{}).ReadResponse(out, &reread, &v); err != nil {
		t.Fatalf("reading the changed frame: %v", err)
	}
	if fields(&reread.Header) != fields(&r.Header) {
		t.Fatalf("fields %s\nwant %s", fields(&reread.Header), fields(&r.Header))
	}
}
