package hessian

import (
	"strings"
	"testing"
)

// TestReadRequestDoesNotAllocate verifies that a Decoder on the stack reads a captured request with
// arguments of various sizes without an allocation.
func TestReadRequestDoesNotAllocate(t *testing.T) {
	for _, argument := range []string{"world", strings.Repeat("x", 1<<20), strings.Repeat("😀", 1000)} {
		body := request(t, argument)
		allocs := testing.AllocsPerRun(100, func() {
			var d Decoder
			if n, err := readRequest(&d, body); n != 7 || err != nil {
				t.Fatalf("readRequest = %d, %v; want 7 attachments", n, err)
			}
		})
		if allocs != 0 {
			t.Errorf("%d bytes of argument: %v allocations, want 0", len(argument), allocs)
		}
	}
}

// TestReusedDecoderDoesNotAllocate verifies that a reused Decoder does not allocate for deep
// nesting, many classes, text that cannot borrow the body, and a map by reference.
func TestReusedDecoderDoesNotAllocate(t *testing.T) {
	const depth, classes = 300, 100
	body := nestedLists(depth)
	body = append(body, strings.Repeat("C\x01c\x90", classes)...)
	body = AppendInt(append(body, 'O'), classes-1)
	arguments := len(body)
	body = AppendMapStart(body)
	body = AppendString(AppendString(body, "😀"), strings.Repeat("é", 100_000))
	body = AppendInt(AppendString(body, "n"), 1<<20)
	body = AppendMapEnd(body)
	body = AppendInt(append(body, 'Q'), depth+1)
	var d Decoder
	var e Entry
	allocs := testing.AllocsPerRun(10, func() {
		d.Reset(body)
		for d.Offset() < arguments {
			if err := d.Skip(); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if _, err := d.Map(); err != nil {
				t.Fatal(err)
			}
			for more := true; more; {
				var err error
				if more, err = d.Entry(&e); err != nil {
					t.Fatal(err)
				}
			}
		}
		if d.Kind() != End {
			t.Fatalf("next value is of kind %v, want end", d.Kind())
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want 0", allocs)
	}
}

// TestAppendDoesNotAllocate verifies that the Append functions do not allocate if dst has enough
// capacity.
func TestAppendDoesNotAllocate(t *testing.T) {
	dst := make([]byte, 0, 1<<20)
	long := strings.Repeat("a😀", 50_000)
	allocs := testing.AllocsPerRun(10, func() {
		b := AppendMapStart(dst)
		b = AppendString(b, "key")
		b = AppendString(b, long)
		b = AppendInt(b, 1<<30)
		b = AppendLong(b, 1<<60)
		b = AppendMapEnd(b)
		if b = AppendThrowable(b, Throwable{Class: "c", Message: long[:100], Code: 1}); cap(b) != cap(dst) {
			t.Fatal("dst was too small")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want 0", allocs)
	}
}
