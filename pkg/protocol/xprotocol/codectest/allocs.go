package codectest

import (
	"bytes"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// checkAllocations checks that the methods that engines call for every frame allocate nothing.
func checkAllocations(tb testing.TB, c xprotocol.Codec, s *Suite) {
	for _, f := range s.Frames {
		head, _ := c.ParseFrame(f.Bytes)
		frame := bytes.Clone(f.Bytes)
		dst := make([]byte, 0, 2*len(frame)+256)
		checkNoAllocs(tb, f.Name+": Match", func() { c.Match(frame) })
		checkNoAllocs(tb, f.Name+": ParseFrame", func() { _, _ = c.ParseFrame(frame) })
		checkNoAllocs(tb, f.Name+": SetID", func() { c.SetID(frame, head.ID) })
		var m message
		switch {
		case isRequest(head.Kind):
			checkReadAllocs(tb, f, "ReadRequest", func() { _ = m.readRequest(c, frame) })
			for _, remaining := range []time.Duration{0, 3 * time.Millisecond} {
				checkNoAllocs(tb, f.Name+": AppendRequest", func() { _, _ = c.AppendRequest(dst, frame, &m.request, &m.view, remaining) })
			}
		case head.Kind == xprotocol.Response:
			checkReadAllocs(tb, f, "ReadResponse", func() { _ = m.readResponse(c, frame) })
			checkNoAllocs(tb, f.Name+": AppendResponse", func() { _, _ = c.AppendResponse(dst, frame, &m.response, &m.view) })
		case head.Kind == xprotocol.Heartbeat:
			checkNoAllocs(tb, f.Name+": AppendHeartbeatAck", func() { c.AppendHeartbeatAck(dst, frame) })
		}
	}
	dst := make([]byte, 0, 256)
	checkNoAllocs(tb, "AppendHeartbeat", func() { c.AppendHeartbeat(dst, 1) })
}

// checkReadAllocs calls checkNoAllocs for reading f, but only runs read if f.MayAllocate is set.
func checkReadAllocs(tb testing.TB, f Frame, name string, read func()) {
	if f.MayAllocate {
		read()
		return
	}
	checkNoAllocs(tb, f.Name+": "+name, read)
}

// checkNoAllocs checks that f allocates nothing after its first run.
func checkNoAllocs(tb testing.TB, name string, f func()) {
	if n := testing.AllocsPerRun(10, f); n != 0 {
		tb.Errorf("%s: %v allocations, want 0", name, n)
	}
}
