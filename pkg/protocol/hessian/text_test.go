package hessian

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for _, c := range []struct {
		name, body, want string
		borrowed         bool // the text borrows the body
	}{
		{"empty", "\x00", "", true},
		{"ascii", "\x03abc", "abc", true},
		{"ascii of eight", "\x08abcdefgh", "abcdefgh", true},
		{"length in two bytes", "\x30\x03abc", "abc", true},
		{"length in three bytes", "S\x00\x03abc", "abc", true},
		{"two bytes per unit", "\x02éé", "éé", true},
		{"three bytes per unit", "\x02中文", "中文", true},
		{"U+FFFF", "\x01\uffff", "\uffff", true},
		{"surrogate pair", "\x02\xed\xa0\xbd\xed\xb8\x80", "😀", false},
		{"pair among others", "\x05a\xed\xa0\xbd\xed\xb8\x80é中", "a😀é中", false},
		{"lone high surrogate", "\x02\xed\xa0\xbdx", "\ufffdx", false},
		{"lone high surrogate at the end", "\x01\xed\xa0\xbd", "\ufffd", false},
		{"lone low surrogate", "\x02\xed\xb8\x80x", "\ufffdx", false},
		{"pair in reverse order", "\x02\xed\xb8\x80\xed\xa0\xbd", "\ufffd\ufffd", false},
		{"two high surrogates and a low one", "\x03\xed\xa0\xbd\xed\xa0\xbd\xed\xb8\x80", "\ufffd😀", false},
		{"NUL", "\x01\x00", "\x00", true},
		{"NUL in two bytes", "\x01\xc0\x80", "\x00", false},
		{"letter in two bytes, as receivers read it", "\x01\xc1\x81", "A", false},
		{"letter in three bytes", "\x01\xe0\x81\x81", "A", false},
		{"invalid second byte", "\x01\xc3\x28", "è", false},
		{"chunks", "R\x00\x02abS\x00\x01c", "abc", false},
		{"chunks, last one short", "R\x00\x02ab\x01c", "abc", false},
		{"chunks, last one empty", "R\x00\x02ab\x00", "ab", false},
		{"chunks, all empty", "R\x00\x00\x00", "", true},
		{"three chunks", "R\x00\x01aR\x00\x01é\x30\x01c", "aéc", false},
		{"pair in two chunks", "R\x00\x02a\xed\xa0\xbdS\x00\x02\xed\xb8\x80b", "a😀b", false},
		{"high surrogate, then a chunk of ASCII", "R\x00\x01\xed\xa0\xbd\x01b", "\ufffdb", false},
		{"true", "T", "true", false},
		{"false", "F", "false", false},
		{"int", "\xc7\xff", "-1", false},
		{"long", "\x59\x7f\xff\xff\xff", "2147483647", false},
		{"double", "\x5f\x00\x00\x2f\xda", "12.25", false},
		{"whole double", "\x5d\x03", "3", false},
		{"large double", "D\x7e\x37\xe4\x3c\x88\x00\x75\x9c", "1e+300", false},
	} {
		body := []byte(c.body)
		d := newDecoder(Final, body)
		got, err := d.Text()
		if err != nil || string(got) != c.want || got == nil || d.Kind() != End {
			t.Errorf("%s: %q, %v, then %v, want %q", c.name, got, err, d.Kind(), c.want)
			continue
		}
		borrowed := len(got) == 0 || len(got) < len(body) && &got[0] == &body[len(body)-len(got)]
		if borrowed != c.borrowed {
			t.Errorf("%s: the text borrows the body: %v, want %v", c.name, borrowed, c.borrowed)
		}
	}
}

func TestNullHasNoText(t *testing.T) {
	d := newDecoder(Final, AppendNull(nil))
	if got, err := d.Text(); got != nil || err != nil || d.Kind() != End {
		t.Errorf("text of null = %q, %v, then %v; want nil, then the end", got, err, d.Kind())
	}
}

func TestTextIsValidUntilReset(t *testing.T) {
	body := AppendString(nil, "😀")
	body = AppendInt(body, 1234)
	for range 100 {
		body = AppendString(body, strings.Repeat("😀", 50))
	}
	d := newDecoder(Final, body)
	first, _ := d.Text()
	second, _ := d.Text()
	for d.Kind() != End {
		if _, err := d.Text(); err != nil {
			t.Fatal(err)
		}
	}
	if string(first) != "😀" || string(second) != "1234" {
		t.Errorf("texts %q and %q after reading further values, want \"😀\" and \"1234\"", first, second)
	}
	if got := append(first, "x"...); string(second) != "1234" || len(got) != 5 {
		t.Errorf("appending to a text changed the next to %q", second)
	}
}

func TestMalformedText(t *testing.T) {
	for _, c := range []struct {
		name, body string
		offset     int
		rule       string
	}{
		{"four-byte sequence", "\x02\xf0\x9f\x98\x80", 1, ruleText},
		{"continuation byte", "\x02a\x80", 2, ruleText},
		{"0xff far in", "\x0a" + "aaaaaaaaa\xff", 10, ruleText},
		{"chunk followed by a number", "R\x00\x01a\x91", 4, ruleChunk},
		{"chunk followed by a binary", "R\x00\x01a\x20", 4, ruleChunk},
		{"chunk followed by null", "R\x00\x01aN", 4, ruleChunk},
		{"chunk at the end", "R\x00\x01a", 4, ruleTruncated},
		{"truncated unit", "\x01\xe4\xb8", 3, ruleTruncated},
		{"truncated unit of two bytes", "\x01\xc3", 2, ruleTruncated},
		{"truncated after a unit of three bytes", "\x03中", 4, ruleTruncated},
	} {
		for _, read := range []struct {
			name string
			call func(*Decoder) error
		}{
			{"Text", func(d *Decoder) error { _, err := d.Text(); return err }},
			{"Skip", (*Decoder).Skip},
		} {
			err := read.call(newDecoder(Final, []byte(c.body)))
			if parseErr, ok := err.(*Error); !ok || parseErr.Offset != c.offset || parseErr.Rule != c.rule {
				t.Errorf("%s: %s: %v, want byte %d: %s", c.name, read.name, err, c.offset, c.rule)
			}
		}
	}
}

// TestStringRoundTrip uses sizes around those at which the number of 8-byte words, the form or the
// number of chunks changes.
func TestStringRoundTrip(t *testing.T) {
	for _, letter := range []string{"a", "é", "中", "😀", "a😀", "xxxxxxxx中", "\xff"} {
		for _, times := range []int{0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 65, 511, 512, 1023, 1024, 1025, 16383, 16384, 32767, 32768, 32769, 65535, 65536, 70000} {
			s := strings.Repeat(letter, times)
			b := AppendString([]byte("T"), s)
			d := newDecoder(Final, b)
			if ok, err := d.Bool(); !ok || err != nil {
				t.Fatalf("Bool = %v, %v; want true", ok, err)
			}
			got, err := d.Text()
			want := strings.Repeat(strings.ToValidUTF8(letter, "\ufffd"), times)
			if err != nil || string(got) != want || d.Kind() != End {
				t.Fatalf("Text of %q × %d = %.40q…, %v, then %v; want the same text, then the end", letter, times, got, err, d.Kind())
			}
			d.Reset(b[1:])
			if err := d.Skip(); err != nil || d.Kind() != End {
				t.Fatalf("after Skip of %q × %d: %v, %v; want the end", letter, times, d.Kind(), err)
			}
		}
	}
}

func TestIsASCIIFindsByteAnywhere(t *testing.T) {
	for n := range 100 {
		b := []byte(strings.Repeat("\x7f", n))
		if !isASCII(b) {
			t.Fatalf("isASCII of %d ASCII bytes = false, want true", n)
		}
		for i := range b {
			b[i] = utf8.RuneSelf
			if isASCII(b) {
				t.Fatalf("isASCII with a non-ASCII byte at index %d of %d bytes = true, want false", i, n)
			}
			b[i] = 'a'
		}
	}
}
