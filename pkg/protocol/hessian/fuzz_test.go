package hessian

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// samples returns seed bodies: captures, output of other writers, and bodies of the tests of this
// package.
func samples(tb testing.TB) []capture {
	tb.Helper()
	all := captures(tb)
	for _, g := range goldens(tb) {
		if len(g.bytes) > 0 && len(g.bytes) < 2000 {
			all = append(all, capture{g.name, g.dialect, g.bytes})
		}
	}
	for _, body := range []string{
		"H\x01a\x01bZQ\x90", "M\x04typeN\x01aZ", "H\x01aQ\x90\x01b\x79Q\x91Z", "R\x00\x02a\xed\xa0\xbdS\x00\x02\xed\xb8\x80b",
		"\x01\xc1\x81\x02\xed\xb8\x80x", "\x57\x57\x79HNZZZ", "C\x01c\x92\x01f\x01g\x60TH\x01k\x91ZQ\x91",
	} {
		all = append(all, capture{body, Final, []byte(body)})
	}
	for _, body := range []string{
		"Mt\x00\x01t\x01aMu\x90z\x01bv\x90\x92TFz\x4a\x00", "VTn\x01Nz", "VT\x90l\x00\x00\x00\x01Nz",
	} {
		all = append(all, capture{body, Draft, []byte(body)})
	}
	return all
}

// FuzzDecoder verifies that a walk of any body stays within its bytes and takes at most one step per
// byte; that skipping and reading give the same result; that a prefix of a body has the same values or
// is truncated; and that a rewritten map has the same entries.
func FuzzDecoder(f *testing.F) {
	for _, c := range samples(f) {
		f.Add(c.body, c.dialect == Draft, uint16(len(c.body)/2))
	}
	var skipped, read, part Decoder
	f.Fuzz(func(t *testing.T, b []byte, draft bool, cut uint16) {
		dialect := Final
		if draft {
			dialect = Draft
		}
		skipped.Dialect, read.Dialect, part.Dialect = dialect, dialect, dialect
		skipped.Reset(b)
		read.Reset(b)
		part.Reset(b[:min(int(cut), len(b))])
		for skipped.Kind() != End {
			start := skipped.Offset()
			kind := skipped.Kind()
			err := skipped.Skip()
			if skipped.Offset() > len(b) || skipped.values > len(b) || err == nil && skipped.Offset() <= start {
				t.Fatalf("%d values, from byte %d to %d of %d", skipped.values, start, skipped.Offset(), len(b))
			}
			checkPart(t, &part, &skipped, err)
			errRead := readValue(t, &read, b)
			if err != nil {
				broken, ok := err.(*Error)
				if !ok || broken.Offset > len(b) || broken.Rule == "" {
					t.Fatalf("at byte %d: %v", start, err)
				}
				if errRead == nil {
					t.Fatalf("a %v at byte %d is read, but not skipped: %v", kind, start, err)
				}
				return
			}
			if errRead != nil {
				if kind == Ref { // not to a map
					return
				}
				t.Fatalf("a %v at byte %d is skipped, but not read: %v", kind, start, errRead)
			}
			if state(&read) != state(&skipped) {
				t.Fatalf("a %v at byte %d is read to %v and skipped to %v", kind, start, state(&read), state(&skipped))
			}
		}
	})
}

// state is the state on which later values depend.
func state(d *Decoder) [4]int { return [4]int{d.pos, d.containers, d.types, d.classes.n} }

// checkPart fails t unless part, a prefix of whole, has the same values.
func checkPart(t *testing.T, part, whole *Decoder, err error) {
	t.Helper()
	if part.next() == End {
		return
	}
	errPart := part.Skip()
	if errPart == nil {
		if err != nil || state(part) != state(whole) {
			t.Fatalf("the first %d bytes are a value to %v; all are to %v, %v", len(part.b), state(part), state(whole), err)
		}
		return
	}
	if rule := errPart.(*Error).Rule; err == nil && rule != ruleCut && rule != ruleCount {
		t.Fatalf("the first %d bytes are not cut but: %v", len(part.b), errPart)
	}
	part.Reset(nil)
}

// readValue consumes a value according to its kind.
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
		t.Fatalf("text %q, %v", text, err)
	}
	again := newDecoder(Final, AppendString(nil, string(text)))
	if got, err := again.Text(); err != nil || !bytes.Equal(got, text) {
		t.Fatalf("%q written anew reads as %q, %v", text, got, err)
	}
}

// rewriteMap consumes a map, rewrites it from its head and entries, and fails t unless the result has
// the same entries.
func rewriteMap(t *testing.T, d *Decoder, b []byte) error {
	t.Helper()
	before := *d
	before.classes.far, before.text = slices.Clone(d.classes.far), nil // must not be shared
	head, err := d.Map()
	if err != nil {
		return err
	}
	end := byte('Z')
	if d.Dialect == Draft {
		end = 'z'
	}
	anew := append(bytes.Clone(b[:before.pos]), head...)
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
		if e.Start >= e.Middle || e.Middle >= e.End || e.End > len(b) {
			t.Fatalf("an entry from byte %d by %d to %d of %d", e.Start, e.Middle, e.End, len(b))
		}
		anew = append(anew, b[e.Start:e.End]...)
		entries = append(entries, e)
	}
	if len(head) == 0 {
		return nil
	}
	anew = append(anew, end)
	again := before
	again.b = anew
	if _, err := again.Map(); err != nil {
		t.Fatalf("the map written anew: %v", err)
	}
	for i, want := range entries {
		more, err := again.Entry(&e)
		if !more || err != nil {
			t.Fatalf("entry %d of the map written anew: %v", i, err)
		}
		if !bytes.Equal(e.Key, want.Key) || !bytes.Equal(e.Value, want.Value) || e.Kind != want.Kind || e.Refers != want.Refers || want.Defines && !e.Defines {
			t.Fatalf("entry %d is %+v, and written anew %+v", i, want, e)
		}
	}
	if more, err := again.Entry(&e); more || err != nil || again.pos != len(anew) {
		t.Fatalf("the map written anew goes on: %v, %v, byte %d of %d", more, err, again.pos, len(anew))
	}
	return nil
}

// FuzzAppendString verifies that any string reads as it was written, in one piece and in chunks, with
// invalid UTF-8 as U+FFFD.
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
			t.Fatalf("%.40q… of %d bytes reads as %.40q…, %v, then %v", s, len(s), got, err, d.Kind())
		}
	})
}
