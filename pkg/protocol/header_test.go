package protocol

import (
	"slices"
	"testing"
	"unsafe"
)

// testLoader is a FieldLoader whose fields borrow buffer.
type testLoader struct{ buffer []byte }

func (l testLoader) LoadFields(h *Header) {
	h.Add(unsafe.String(&l.buffer[0], 1), unsafe.String(&l.buffer[1], 2))
	h.Add(unsafe.String(&l.buffer[0], 1), unsafe.String(&l.buffer[3], 2))
}

func TestCloneFields(t *testing.T) {
	buffer := []byte("A12bc")
	var h Header
	h.SetLoader(testLoader{buffer})
	got := h.CloneFields()
	clear(buffer)
	if want := []Field{{"A", "12"}, {"A", "bc"}}; !slices.Equal(got, want) {
		t.Errorf("CloneFields = %q, want %q", got, want)
	}
	if got := new(Header).CloneFields(); len(got) != 0 {
		t.Errorf("CloneFields of an empty header = %q, want none", got)
	}
}
