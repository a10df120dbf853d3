package codectest

import (
	"bytes"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// checkAllocations checks that the work for every frame allocates nothing.
func checkAllocations(tb testing.TB, c xprotocol.Codec, s *Suite) {
	for _, f := range s.Frames {
		head, _ := c.ParseFrame(f.Bytes)
		frame := bytes.Clone(f.Bytes)
		dst := make([]byte, 0, 2*len(frame)+256)
		still(tb, f.Name+": Match", func() { c.Match(frame) })
		still(tb, f.Name+": Next", func() { _, _ = c.ParseFrame(frame) })
		still(tb, f.Name+": SetID", func() { c.SetID(frame, head.ID) })
		var m message
		switch {
		case isRequest(head.Kind):
			quiet(tb, f, "ReadRequest", func() { _ = m.readRequest(c, frame) })
			for _, left := range []time.Duration{0, 3 * time.Millisecond} {
				still(tb, f.Name+": AppendRequest", func() { _, _ = c.AppendRequest(dst, frame, &m.request, &m.view, left) })
			}
		case head.Kind == xprotocol.Response:
			quiet(tb, f, "ReadResponse", func() { _ = m.readResponse(c, frame) })
			still(tb, f.Name+": AppendResponse", func() { _, _ = c.AppendResponse(dst, frame, &m.response, &m.view) })
		case head.Kind == xprotocol.Heartbeat:
			still(tb, f.Name+": AppendPong", func() { c.AppendHeartbeatAck(dst, frame) })
		}
	}
	dst := make([]byte, 0, 256)
	still(tb, "AppendPing", func() { c.AppendHeartbeat(dst, 1) })
}

// quiet calls still for reading f, but only runs read if f is Rare.
func quiet(tb testing.TB, f Frame, name string, read func()) {
	if f.Rare {
		read()
		return
	}
	still(tb, f.Name+": "+name, read)
}

// still checks that f allocates nothing after its first run.
func still(tb testing.TB, name string, f func()) {
	if n := testing.AllocsPerRun(10, f); n != 0 {
		tb.Errorf("%s: %v allocations", name, n)
	}
}
