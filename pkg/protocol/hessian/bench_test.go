package hessian

import (
	"bytes"
	"strings"
	"testing"
)

// request returns the body of a captured request with argument in place of its argument.
func request(tb testing.TB, argument string) []byte {
	tb.Helper()
	for _, c := range captures(tb) {
		if c.name != "01-request-string.hex" {
			continue
		}
		d := newDecoder(Final, c.body)
		for range 5 {
			if err := d.Skip(); err != nil {
				tb.Fatal(err)
			}
		}
		start := d.Offset()
		if err := d.Skip(); err != nil {
			tb.Fatal(err)
		}
		body := AppendString(bytes.Clone(c.body[:start]), argument)
		return append(body, c.body[d.Offset():]...)
	}
	tb.Fatal("no capture of a request")
	return nil
}

// readRequest reads a body like the Dubbo codec: five strings, an argument and the attachments. It
// returns the number of attachments.
func readRequest(d *Decoder, body []byte) (int, error) {
	d.Reset(body)
	for range 5 {
		if _, err := d.Text(); err != nil {
			return 0, err
		}
	}
	if err := d.Skip(); err != nil {
		return 0, err
	}
	if _, err := d.Map(); err != nil {
		return 0, err
	}
	var e Entry
	for n := 0; ; n++ {
		if more, err := d.Entry(&e); !more {
			return n, err
		}
	}
}

func BenchmarkReadRequest(b *testing.B) {
	for _, c := range []struct{ name, argument string }{
		{"short", "world"},
		{"1KB", strings.Repeat("x", 1024)},
		{"1KB-chinese", strings.Repeat("中", 341)},
	} {
		b.Run(c.name, func(b *testing.B) {
			body := request(b, c.argument)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				var d Decoder
				if n, err := readRequest(&d, body); n != 7 || err != nil {
					b.Fatalf("readRequest = %d, %v; want 7 attachments", n, err)
				}
			}
		})
	}
}

func BenchmarkSkip(b *testing.B) {
	ints := AppendInt([]byte{0x58}, 100_000)
	for i := range int32(100_000) {
		ints = AppendInt(ints, i%5000)
	}
	for _, c := range []struct {
		name string
		body []byte
	}{
		{"ascii-1KB", AppendString(nil, strings.Repeat("x", 1024))},
		{"ascii-1MB", AppendString(nil, strings.Repeat("x", 1<<20))},
		{"chinese-1MB", AppendString(nil, strings.Repeat("中", 1<<20/3))},
		{"mixed-1MB", AppendString(nil, strings.Repeat("naïve café ", 1<<20/13))},
		{"ints-100000", ints},
		{"objects", objectChain(b)},
		{"nested", nestedLists(400)},
	} {
		b.Run(c.name, func(b *testing.B) {
			var d Decoder
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			for b.Loop() {
				d.Reset(c.body)
				for d.Kind() != End {
					if err := d.Skip(); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// objectChain returns a golden chain of objects that Java has written.
func objectChain(tb testing.TB) []byte {
	tb.Helper()
	for _, g := range goldens(tb) {
		if g.file == hessianLite && g.name == "object Point chain" {
			return g.bytes
		}
	}
	tb.Fatal("no golden value is a chain of objects")
	return nil
}

func nestedLists(depth int) []byte {
	return append(bytes.Repeat([]byte{0x79}, depth), 'N')
}

func BenchmarkAppendString(b *testing.B) {
	for _, c := range []struct{ name, s string }{
		{"ascii-30", "org.example.demo.UserService.."},
		{"ascii-1KB", strings.Repeat("x", 1024)},
		{"emoji-100", strings.Repeat("😀", 100)},
	} {
		b.Run(c.name, func(b *testing.B) {
			dst := make([]byte, 0, 4096)
			b.SetBytes(int64(len(c.s)))
			b.ReportAllocs()
			for b.Loop() {
				dst = AppendString(dst[:0], c.s)
			}
		})
	}
}
