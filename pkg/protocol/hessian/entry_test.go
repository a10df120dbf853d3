package hessian

import (
	"bytes"
	"testing"
)

func TestEntries(t *testing.T) {
	const object = "C\x01c\x91\x01f" // a class definition, not an object
	for _, c := range []struct{ name, body, head, want string }{
		{"null", "N", "", ""},
		{"empty", "HZ", "H", ""},
		{"strings", "H\x01a\x01b\x01c\x00Z", "H", "a=b c= "},
		{"with a type", "M\x04typeN\x01aZ", "M\x04type", "?=a "},
		{"scalars", "H\x01iI\x00\x00\x10\x00\x01l\xe7\x01bT\x01d\x5e\x01\x00Z", "H", "i=4096 l=7 b=true d=256 "},
		{"long text", "H\x01aR\x00\x01x\x01yZ", "H", "a=xy "},
		{"no text", "H\x01aN\x01b\x4a\x00\x00\x00\x00\x00\x00\x00\x00\x01c\x21xZ", "H", "a=null? b=date? c=binary? "},
		{"containers", "H\x01a\x78\x01bHZ\x01c" + object + "\x60\x90Z", "H", "a=list?+ b=map?+ c=object?+^ "},
		{"types", "H\x01a\x71\x02tt\x91\x01b\x70\x90Z", "H", "a=list?+ b=list?+^ "},
		{"references", "H\x01aQ\x90\x01b\x79Q\x91Z", "H", "a=ref?^ b=list?+^ "},
		{"definition without an object", "H\x01a" + object + "\x01xZ", "H", "a=object?+ "},
		{"keys of other kinds", "H\x91\x01aN\x01b\x78\x01cZ", "H", "?=a ?=b ?=c+ "},
	} {
		d := newDecoder(Final, append([]byte(c.body), "\x03end"...))
		head, got := readMap(t, d)
		if string(head) != c.head || got != c.want {
			t.Errorf("%s: %q, %s\nwant %q, %s", c.name, head, got, c.head, c.want)
		}
		if more, err := d.Entry(new(Entry)); more || err != nil {
			t.Errorf("%s: Entry after the map = %v, %v; want false, nil", c.name, more, err)
		}
		if end, err := d.Text(); string(end) != "end" || err != nil {
			t.Errorf("%s: the value after the map is %q, %v; want \"end\"", c.name, end, err)
		}
	}
}

func TestDraftEntries(t *testing.T) {
	for _, c := range []struct{ name, body, head, want string }{
		{"without a type", "M\x01a\x01bz", "M", "a=b "},
		{"with a type", "Mt\x00\x02tt\x01a\x91z", "Mt\x00\x02tt", "a=1 "},
		{"list", "M\x01aVn\x01\x01xz\x01bVl\x00\x00\x00\x00zz", "M", "a=list?+ b=list?+ "},
		{"references", "M\x01a\x4a\x00\x01b\x4b\x00\x00\x01cR\x00\x00\x00\x00z", "M", "a=ref?^ b=ref?^ c=ref?^ "},
		{"object", "M\x01aO\x91c\x91\x01fo\x90Tz", "M", "a=object?+^ "},
		{"type by number", "Mt\x00\x01t\x01aMu\x90z\x01bv\x90\x92TFz", "Mt\x00\x01t", "a=map?+^ b=list?+^ "},
	} {
		d := newDecoder(Draft, []byte(c.body))
		head, got := readMap(t, d)
		if string(head) != c.head || got != c.want || d.Kind() != End {
			t.Errorf("%s: %q, %s, then %v\nwant %q, %s", c.name, head, got, d.Kind(), c.head, c.want)
		}
	}
}

// TestMapByReference verifies that Map reads a reference as the map to which it refers. Clients
// send a reference if they pass the same map as an argument and as attachments.
func TestMapByReference(t *testing.T) {
	for _, c := range []struct {
		name, before, ref, head, want string
		dialect                       Dialect
	}{
		{"the first value", "H\x01a\x01bZ", "Q\x90", "H", "a=b ", Final},
		{"with a type", "\x7aM\x01tN\x01xZ\x78", "Q\x91", "M\x01t", "?=x ", Final},
		{"inside an object", "C\x01c\x92\x01f\x01g\x60TH\x01k\x91Z", "Q\x91", "H", "k=1 ", Final},
		{"with a definition inside", "H\x01kC\x01c\x90\x60\x01l\x60Z\x60", "Q\x90", "H", "k=object?^ l=object?^ ", Final},
		{"that refers to itself", "H\x01kQ\x90Z", "Q\x90", "H", "k=ref?^ ", Final},
		{"of the draft", "V\x01xzM\x01a\x01bz", "\x4b\x00\x01", "M", "a=b ", Draft},
	} {
		end := AppendString(nil, "end")
		d := newDecoder(c.dialect, append([]byte(c.before+c.ref), end...))
		for d.Offset() < len(c.before) {
			if err := d.Skip(); err != nil {
				t.Fatal(c.name, err)
			}
		}
		containers, classes, types := d.containers, d.classes.n, d.types
		head, got := readMap(t, d)
		if string(head) != c.head || got != c.want {
			t.Errorf("%s: %q, %s\nwant %q, %s", c.name, head, got, c.head, c.want)
		}
		if d.containers != containers || d.classes.n != classes || d.types != types {
			t.Errorf("%s: numbers are %d, %d, %d, want %d, %d, %d", c.name, d.containers, d.classes.n, d.types, containers, classes, types)
		}
		if text, err := d.Text(); string(text) != "end" || err != nil {
			t.Errorf("%s: the value after the reference is %q, %v; want \"end\"", c.name, text, err)
		}
	}
}

func TestReferenceToOtherKind(t *testing.T) {
	for _, c := range []struct{ name, before, ref string }{
		{"no earlier container", "", "Q\x90"},
		{"a list", "\x78", "Q\x90"},
		{"an object", "C\x01c\x90\x60", "Q\x90"},
		{"beyond the last", "HZ", "Q\x91"},
		{"far beyond", "HZ", "QI\x7f\xff\xff\xff"},
	} {
		d := newDecoder(Final, []byte(c.before+c.ref))
		for d.Offset() < len(c.before) {
			if err := d.Skip(); err != nil {
				t.Fatal(c.name, err)
			}
		}
		_, err := d.Map()
		if parseErr, ok := err.(*Error); !ok || parseErr.Rule != ruleRef || parseErr.Offset != len(c.before) {
			t.Errorf("%s: %v, want byte %d: %s", c.name, err, len(c.before), ruleRef)
		}
	}
}

func TestMalformedMap(t *testing.T) {
	for _, c := range []struct {
		name, body string
		offset     int
		rule       string
	}{
		{"no end", "H\x01a\x01b", 5, ruleTruncated},
		{"end in place of a value", "H\x01aZ", 3, ruleEnd},
		{"truncated key", "H\x03a", 3, ruleTruncated},
		{"truncated value", "H\x01a\x03b", 5, ruleTruncated},
		{"truncated list", "H\x01a\x7a\x91", 4, ruleCount},
		{"no type", "M\x91\x01a\x01bZ", 2, ""}, // a type number is not looked up
		{"invalid type", "MT\x01a\x01bZ", 1, ruleType},
		{"truncated reference", "Q", 1, ruleTruncated},
	} {
		err := func() error {
			d := newDecoder(Final, []byte(c.body))
			if _, err := d.Map(); err != nil {
				return err
			}
			var e Entry
			for {
				if more, err := d.Entry(&e); !more {
					return err
				}
			}
		}()
		if c.rule == "" {
			if err != nil {
				t.Errorf("%s: %v, want no error", c.name, err)
			}
			continue
		}
		if parseErr, ok := err.(*Error); !ok || parseErr.Offset != c.offset || parseErr.Rule != c.rule {
			t.Errorf("%s: %v, want byte %d: %s", c.name, err, c.offset, c.rule)
		}
	}
}

// TestRewriteMap rewrites a map as the package comment describes: it copies unchanged entries,
// changes one and adds one.
func TestRewriteMap(t *testing.T) {
	before := AppendString(nil, "2.0.2")
	body := append(bytes.Clone(before), "C\x05Point\x92\x01x\x01y\x60\x91\x92M\x04type\x04tag1\x01a\x04list\x7a\x91\x60\x93\x94\x04tag2\x01bZ"...)
	d := newDecoder(Final, body)
	for range 2 {
		if err := d.Skip(); err != nil {
			t.Fatal(err)
		}
	}
	start := d.Offset()
	head, err := d.Map()
	if err != nil {
		t.Fatal(err)
	}
	rewritten := append(bytes.Clone(body[:start]), head...)
	var e Entry
	for {
		more, err := d.Entry(&e)
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			break
		}
		if string(e.Key) == "tag1" {
			rewritten = AppendString(append(rewritten, body[e.Start:e.ValueStart]...), "changed")
			continue
		}
		rewritten = append(rewritten, body[e.Start:e.End]...)
	}
	rewritten = AppendMapEnd(AppendString(AppendString(rewritten, "new"), "ü"))

	d.Reset(rewritten)
	for range 2 {
		if err := d.Skip(); err != nil {
			t.Fatal(err)
		}
	}
	head, got := readMap(t, d)
	if want := "tag1=changed list=list?+^ tag2=b new=ü "; string(head) != "M\x04type" || got != want || d.Kind() != End {
		t.Errorf("%q, %s, then %v, want %s", head, got, d.Kind(), want)
	}
}
