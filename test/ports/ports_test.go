package ports

import (
	"net"
	"strconv"
	"testing"
)

func TestPortIsFree(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // nothing was accepted
	_, text, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	used, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	r := newRange(uint32(used), uint32(used)+1)
	if port, err := r.Free("127.0.0.1"); err == nil {
		t.Errorf("Free = %d, want an error, because this only port of the range has a listener", port)
	}
	r = newRange(uint32(used)-1, uint32(used)+1)
	for range 2 {
		if port, err := r.Free("127.0.0.1"); err == nil && port != int(used)-1 {
			t.Errorf("Free = %d, want %d", port, used-1)
		}
	}
}

// TestRangesDoNotOverlap verifies that the ranges do not overlap and end below the ephemeral ports.
func TestRangesDoNotOverlap(t *testing.T) {
	end := uint32(10_000)
	for _, r := range []*Range{EndToEnd(), Dubbo(), Interop(), Chaos(), Envoy()} {
		if r.first < end {
			t.Errorf("the range from %d begins before %d", r.first, end)
		}
		if end = r.first + r.count; end > 32_768 {
			t.Errorf("the range from %d ends at %d, among the ephemeral ports", r.first, end)
		}
	}
}
