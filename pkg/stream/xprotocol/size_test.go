package xprotocol

import (
	"testing"
	"unsafe"
)

// TestRequestFitsItsSizeClass: 1,024 requests in flight have to stay in the processor's
// cache. The allocator takes 1,792 bytes for what does not fit into 1,536.
func TestRequestFitsItsSizeClass(t *testing.T) {
	const header = 8 // of objects beyond 512 bytes that have pointers
	if size := unsafe.Sizeof(request{}) + header; size > 1536 {
		t.Errorf("a request takes %d bytes", size)
	}
}
