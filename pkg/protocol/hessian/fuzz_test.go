package hessian

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// samples returns the seed bodies: captures, output of other implementations, and bodies of this
// package's tests.
func samples(tb testing.TB) []capture {
	tb.Helper()
	seeds := captures(tb)
	for _, g := range goldens(tb) {
		if len(g.bytes) > 0 && len(g.bytes) < 2000 {
			seeds = append(seeds, capture{g.name, g.dialect, g.bytes})
		}
	}
	for _, body := range []string{
		"H\x01a\x01bZQ\x90", "M\x04typeN\x01aZ", "H\x01aQ\x90\x01b\x79Q\x91Z", "R\x00\x02a\xed\xa0\xbdS\x00\x02\xed\xb8\x80b",
		"\x01\xc1\x81\x02\xed\xb8\x80x", "\x57\x57\x79HNZZZ", "C\x01c\x92\x01f\x01g\x60TH\x01k\x91ZQ\x91",
	} {
		seeds = append(seeds, capture{body, Final, []byte(body)})
	}
	for _, body := range []string{
		"Mt\x00\x01t\x01aMu\x90z\x01bv\x90\x92TFz\x4a\x00", "VTn\x01Nz", "VT\x90l\x00\x00\x00\x01Nz",
	} {
		seeds = append(seeds, capture{body, Draft, []byte(body)})
	}
	return seeds
}

// FuzzDecoder verifies that a Decoder stays within the body and reads at most one value per byte,
// and that Skip and the other methods consume the same bytes. It also verifies that a prefix of a
// body has the same values or is truncated, and that a rewritten map has the same entries.
func FuzzDecoder(f *testing.F) {
	for _, c := range samples(f) {
		f.Add(c.body, c.dialect == Draft, uint16(len(c.body)/2))
	}
	var skipper, reader, prefix Decoder
	f.Fuzz(func(t *testing.T, b []byte, draft bool, n uint16) {
		dialect := Final
		if draft {
			dialect = Draft
		}
		skipper.Dialect, reader.Dialect, prefix.Dialect = dialect, dialect, dialect
		skipper.Reset(b)
		reader.Reset(b)
		prefix.Reset(b[:min(int(n), len(b))])
		for skipper.Kind() != End {
			start := skipper.Offset()
			kind := skipper.Kind()
			err := skipper.Skip()
			if skipper.Offset() > len(b) || skipper.values > len(b) || err == nil && skipper.Offset() <= start {
				t.Fatalf("Skip read %d values from byte %d to %d of %d; want progress within the body", skipper.values, start, skipper.Offset(), len(b))
			}
			checkPrefix(t, &prefix, &skipper, err)
			readErr := readValue(t, &reader, b)
			if err != nil {
				parseErr, ok := err.(*Error)
				if !ok || parseErr.Offset > len(b) || parseErr.Rule == "" {
					t.Fatalf("at byte %d: %v, want an *Error with a Rule and an Offset within the body", start, err)
				}
				if readErr == nil {
					t.Fatalf("a %v at byte %d was read, but Skip failed: %v", kind, start, err)
				}
				return
			}
			if readErr != nil {
				if kind == Ref { // a reference that does not refer to a map
					return
				}
				t.Fatalf("a %v at byte %d was skipped, but reading failed: %v", kind, start, readErr)
			}
			if state(&reader) != state(&skipper) {
				t.Fatalf("a %v at byte %d: state %v after reading, want %v as after Skip", kind, start, state(&reader), state(&skipper))
			}
		}
	})
}

// state returns the state on which later values depend.
func state(d *Decoder) [4]int { return [4]int{d.pos, d.containers, d.types, d.classes.n} }

// checkPrefix fails t unless prefix has the same values as full.
func checkPrefix(t *testing.T, prefix, full *Decoder, err error) {
	t.Helper()
	if prefix.next() == End {
		return
	}
	prefixErr := prefix.Skip()
	if prefixErr == nil {
		if err != nil || state(prefix) != state(full) {
			t.Fatalf("the state after a value of the first %d bytes is %v, want the state after the value of the full body, %v; error of the full body %v, want none", len(prefix.b), state(prefix), state(full), err)
		}
		return
	}
	if rule := prefixErr.(*Error).Rule; err == nil && rule != ruleTruncated && rule != ruleCount {
		t.Fatalf("the first %d bytes: %v, want truncated", len(prefix.b), prefixErr)
	}
	prefix.Reset(nil)
}

func readValue(t *testing.T, d *Decoder, b []byte) error {
	t.Helper()
	var err error
	switch d.Kind() {
	case String:
		var text []byte
		text, err = d.Text()
		checkText(t, text, err)
	case Null:
		_, err = d.Text()
	case Bool:
		_, err = d.Bool()
	case Int:
		_, err = d.Int()
	case Long:
		_, err = d.Long()
	case Double:
		_, err = d.Double()
	case Map, Ref:
		err = rewriteMap(t, d, b)
	default:
		err = d.Skip()
	}
	return err
}

// checkText fails t unless text is UTF-8 and reads the same after it is written.
func checkText(t *testing.T, text []byte, err error) {
	t.Helper()
	if !utf8.Valid(text) || err == nil && text == nil {
		t.Fatalf("text %q, %v; want UTF-8 that is not nil", text, err)
	}
	d := newDecoder(Final, AppendString(nil, string(text)))
	if got, err := d.Text(); err != nil || !bytes.Equal(got, text) {
		t.Fatalf("%q written again reads as %q, %v; want the same text", text, got, err)
	}
}

// rewriteMap consumes a map, rewrites it from its head and entries, and fails t unless the result
// has the same entries.
func rewriteMap(t *testing.T, d *Decoder, b []byte) error {
	t.Helper()
	before := *d
	before.classes.overflow, before.text = slices.Clone(d.classes.overflow), nil // must not be shared
	head, err := d.Map()
	if err != nil {
		return err
	}
	end := byte('Z')
	if d.Dialect == Draft {
		end = 'z'
	}
	rewritten := append(bytes.Clone(b[:before.pos]), head...)
	var entries []Entry
	var e Entry
	for {
		more, err := d.Entry(&e)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if e.Start >= e.ValueStart || e.ValueStart >= e.End || e.End > len(b) {
			t.Fatalf("Start %d, ValueStart %d, End %d of a body of %d bytes; want ascending offsets", e.Start, e.ValueStart, e.End, len(b))
		}
		rewritten = append(rewritten, b[e.Start:e.End]...)
		entries = append(entries, e)
	}
	if len(head) == 0 {
		return nil
	}
	rewritten = append(rewritten, end)
	reparsed := before
	reparsed.b = rewritten
	if _, err := reparsed.Map(); err != nil {
		t.Fatalf("the rewritten map: %v", err)
	}
	for i, want := range entries {
		more, err := reparsed.Entry(&e)
		if !more || err != nil {
			t.Fatalf("entry %d of the rewritten map: %v", i, err)
		}
		if !bytes.Equal(e.Key, want.Key) || !bytes.Equal(e.Value, want.Value) || e.Kind != want.Kind || e.HasReference != want.HasReference || want.DefinesNumbers && !e.DefinesNumbers {
			t.Fatalf("entry %d of the rewritten map is %+v, want %+v", i, e, want)
		}
	}
	if more, err := reparsed.Entry(&e); more || err != nil || reparsed.pos != len(rewritten) {
		t.Fatalf("after the last entry of the rewritten map: more = %v, %v, byte %d of %d; want the end", more, err, reparsed.pos, len(rewritten))
	}
	return nil
}

// FuzzAppendString verifies that any string, in one piece or in chunks, is read as it was written,
// with U+FFFD in place of invalid UTF-8.
func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "abc", "é中😀", "\xff\xc0a", strings.Repeat("x", 31) + "😀"} {
		f.Add(s, uint16(1))
		f.Add(s, uint16(40_000))
	}
	f.Fuzz(func(t *testing.T, s string, times uint16) {
		if len(s) > 0 {
			s = strings.Repeat(s, min(int(times), 1+70_000/len(s)))
		}
		d := newDecoder(Final, AppendString(nil, s))
		got, err := d.Text()
		if want := string([]rune(s)); err != nil || string(got) != want || d.Kind() != End {
			t.Fatalf("%.40q… of %d bytes reads as %.40q…, %v, then %v; want the same text, then the end", s, len(s), got, err, d.Kind())
		}
	})
}
