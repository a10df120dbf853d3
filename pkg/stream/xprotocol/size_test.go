package xprotocol

import (
	"testing"
	"unsafe"
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
