package dubbo

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// FuzzCodec: whatever comes in has a size, or is no frame; what can be read
// leaves as it came, and with a field changed reads as changed, and else as it was.
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
		frame, err := Codec{}.Next(b)
		if (err != nil) != ((Codec{}).Match(b) == xprotocol.No) {
			t.Fatalf("Match and Next are not of one mind: %v", err)
		}
		if err != nil {
			return
		}
		if (frame.Size >= headSize) != (len(b) >= headSize) {
			t.Fatalf("%d bytes have a size of %d", len(b), frame.Size)
		}
		if frame.Size == 0 {
			return
		}
		b = closeFrame(bytes.Clone(b), 0) // most would be cut, or not whole
		if frame, err = (Codec{}).Next(b); err != nil || frame.Size != len(b) {
			t.Fatalf("%d bytes are %+v, %v", len(b), frame, err)
		}
		value = string([]rune(value)) // what is not UTF-8 does not come back
		name = string([]rune(name))
		switch frame.Kind {
		case xprotocol.Request, xprotocol.OneWay:
			fuzzRequest(t, b, name, value)
		case xprotocol.Response:
			fuzzResponse(t, b, name, value)
		case xprotocol.Ping:
			pong, err := Codec{}.Next(Codec{}.AppendPong(nil, b))
			if err != nil || pong.Kind != xprotocol.Pong || pong.ID != frame.ID {
				t.Fatalf("a ping is answered by %+v, %v", pong, err)
			}
		}
	})
}

func fuzzRequest(t *testing.T, frame []byte, name, value string) {
	var r, again request
	if err := (Codec{}).ReadRequest(frame, &r.Request, &r.view); err != nil {
		if protocol.ReasonOf(err) != protocol.MalformedRequest {
			t.Fatal(err)
		}
		return
	}
	out, err := Codec{}.AppendRequest(nil, frame, &r.Request, &r.view, 0)
	if err != nil || !bytes.Equal(out, frame) {
		t.Fatalf("leaves as %x, %v", out, err)
	}
	out, err = Codec{}.AppendRequest(nil, frame, &r.Request, &r.view, 7*time.Millisecond)
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
	if f, err := (Codec{}).Next(out); err != nil || f.Size != len(out) {
		t.Fatalf("a changed frame of %d bytes is %+v, %v", len(out), f, err)
	}
	if err := (Codec{}).ReadRequest(out, &again.Request, &again.view); err != nil {
		t.Fatalf("changed, it cannot be read: %v", err)
	}
	if again.Header.Get(name) != value {
		t.Fatalf("%q is %q and was set to %q", name, again.Header.Get(name), value)
	}
	if !isRouting(name) && fields(&again.Header) != fields(&r.Header) {
		t.Fatalf("read as %s\nwant %s", fields(&again.Header), fields(&r.Header))
	}
}

// checkTimeout fails t unless all that can be lowered in a frame was lowered to 7
// ms.
func checkTimeout(t *testing.T, was *request, frame []byte) {
	if was.view.Marks == [6]int32{} {
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
		from, to := r.view.Marks[mark], r.view.Marks[mark+1]
		if from != was.view.Marks[mark] || to != was.view.Marks[mark+1] {
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
	var v xprotocol.View
	if err := (Codec{}).ReadResponse(frame, &r, &v); err != nil {
		if protocol.ReasonOf(err) != protocol.UpstreamMalformed {
			t.Fatal(err)
		}
		return
	}
	out, err := Codec{}.AppendResponse(nil, frame, &r, &v)
	if err != nil || !bytes.Equal(out, frame) {
		t.Fatalf("leaves as %x, %v", out, err)
	}
	r.Header.Set(name, value)
	if r.Header.Len() > maxAttachments || !r.Header.Changed() || !isHessian(frame) || frame[statusAt] != statusOK {
		return
	}
	out, err = Codec{}.AppendResponse(nil, frame, &r, &v)
	if err != nil {
		if protocol.ReasonOf(err) != protocol.UpstreamMalformed {
			t.Fatal(err)
		}
		return // a value that need not be read to be passed on
	}
	if err := (Codec{}).ReadResponse(out, &again, &v); err != nil {
		t.Fatalf("changed, it cannot be read: %v", err)
	}
	if fields(&again.Header) != fields(&r.Header) {
		t.Fatalf("read as %s\nwant %s", fields(&again.Header), fields(&r.Header))
	}
}
