package xprotocol

import (
	"context"
	"testing"
	"unsafe"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestRequestFitsItsSizeClass verifies that a request fits the allocator's size class of 1,536
// bytes; the next one is 1,792. The working set of 1,024 requests in flight has to stay in the CPU
// cache.
func TestRequestFitsItsSizeClass(t *testing.T) {
	const header = 8 // size of the allocator's header for objects above 512 bytes with pointers
	if size := unsafe.Sizeof(request{}) + header; size > 1536 {
		t.Errorf("a request takes %d bytes, want at most 1536", size)
	}
}

// TestRequestLengthIsFrameSize verifies that request_length, the sum of the head and the body in
// the record, counts each byte of a frame once.
func TestRequestLengthIsFrameSize(t *testing.T) {
	length := make(chan int64, 1)
	service := protocol.ServiceFunc(func(_ context.Context, x *protocol.Exchange) error {
		length <- int64(x.Meta.HeadSize) + x.Record.RequestBytes
		return protocol.NewFault(protocol.ReasonNoRoute, nil)
	})
	frame := requestFrame(1, "text")
	newTestProxy(t, service, nil).dial().write(frame)
	if got := <-length; got != int64(len(frame)) {
		t.Errorf("length of a request = %d, want %d", got, len(frame))
	}
}
