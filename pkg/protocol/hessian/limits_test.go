package hessian

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

func TestLimits(t *testing.T) {
	class := func(fields int) string {
		return "C\x01c" + string(AppendInt(nil, int32(fields))) + strings.Repeat("\x01f", fields)
	}
	for _, c := range []struct {
		name   string
		limits Limits
		good   string
		bad    string
		offset int
		rule   string
	}{
		{"depth", Limits{Depth: 3}, "\x79\x79\x79N", "\x79\x79\x79\x79N", 3, limitDepth},
		{"depth of maps", Limits{Depth: 2}, "H\x01aHZZ", "H\x01aH\x01bHZZZ", 6, limitDepth},
		{"depth by default", Limits{}, string(nestedLists(512)), string(nestedLists(513)), 512, limitDepth},
		{"classes", Limits{Classes: 2}, class(0) + class(0) + "N", class(0) + class(0) + class(0) + "N", 8, limitClasses},
		{"classes by default", Limits{}, strings.Repeat(class(0), 1024) + "N", strings.Repeat(class(0), 1025) + "N", 4096, limitClasses},
		{"fields", Limits{Fields: 2}, class(2) + "N", class(3) + "N", 4, limitFields},
		{"fields by default", Limits{}, class(4096) + "N", class(4097) + "N", 6, limitFields},
		{"values", Limits{Values: 3}, "\x7aNN", "\x7bNNN", 3, limitValues},
		{"length of a string", Limits{Length: 3}, "\x03中中中", "\x04aaaa", 0, limitLength},
		{"length of a string in chunks", Limits{Length: 3}, "R\x00\x02aa\x01a", "R\x00\x02aa\x02aa", 5, limitLength},
		{"length of a binary", Limits{Length: 3}, "\x23aaa", "\x24aaaa", 0, limitLength},
		{"length of a field's name", Limits{Length: 3}, "C\x03aaa\x90N", "C\x04aaaa\x90N", 1, limitLength},
		{"size", Limits{Size: 4}, "\x03aaa", "\x04aaaa", 0, limitSize},
		{"size of a list", Limits{Size: 4}, "\x7bNNN", "\x7cNNNN", 1, limitSize},
	} {
		d := Decoder{Limits: c.limits}
		d.Reset([]byte(c.good))
		if err := d.Skip(); err != nil || d.Kind() != End {
			t.Errorf("%s: within the limit: %v", c.name, err)
		}
		d.Reset([]byte(c.bad))
		err := d.Skip()
		parseErr, ok := err.(*Error)
		if !ok || parseErr.Offset != c.offset || parseErr.Rule != c.rule || parseErr.Limit == 0 {
			t.Errorf("%s: beyond the limit: %v, want byte %d: %s", c.name, err, c.offset, c.rule)
		}
	}
}

func TestLimitsApplyToReads(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits Limits
		body   string
		rule   string
	}{
		{"length of a text", Limits{Length: 3}, "H\x04aaaa\x01bZ", limitLength},
		{"length of a text in chunks", Limits{Length: 3}, "HR\x00\x02aa\x02aa\x01bZ", limitLength},
		{"values", Limits{Values: 4}, "H\x01a\x01b\x01c\x01dZ", limitValues},
		{"numbers", Limits{Values: 4}, "H\x01a\x91\x01c\x91Z", limitValues},
		{"maps", Limits{Values: 1}, "HZHZ", limitValues},
		{"a byte too many", Limits{Size: 2}, "HZN", limitSize},
	} {
		d := Decoder{Limits: c.limits}
		d.Reset([]byte(c.body))
		var err error
		for d.Kind() != End && err == nil {
			if _, err = d.Map(); err != nil {
				break
			}
			for more := true; more && err == nil; {
				more, err = d.Entry(new(Entry))
			}
		}
		if parseErr, ok := err.(*Error); !ok || parseErr.Rule != c.rule {
			t.Errorf("%s: %v, want %s", c.name, err, c.rule)
		}
	}
}

// TestHostileBodies verifies that a large declared size costs neither time nor memory.
func TestHostileBodies(t *testing.T) {
	const maxInt = "I\x7f\xff\xff\xff"
	for _, c := range []struct {
		name, body string
		offset     int
		rule       string
	}{
		{"list of 2^31-1", "\x58" + maxInt, 6, ruleCount},
		{"typed list of 2^31-1", "V\x01t" + maxInt, 8, ruleCount},
		{"list of more values than bytes", "\x7cNNN", 1, ruleCount},
		{"list of -1", "\x58\x8f", 1, ruleNegative},
		{"list of a long", "\x58\xe1N", 1, ruleInt},
		{"class of 2^31-1 fields", "C\x01c" + maxInt, 8, limitFields},
		{"class of -2^31 fields", "C\x01cI\x80\x00\x00\x00", 3, ruleNegative},
		{"class without a name", "CN\x90N", 1, ruleName},
		{"class with a number for a field", "C\x01c\x91\x91", 4, ruleName},
		{"object of no class", "\x60", 1, ruleClass},
		{"object of the next class", "C\x01c\x90\x61", 5, ruleClass},
		{"object of class 2^31-1", "C\x01c\x90O" + maxInt, 10, ruleClass},
		{"object of class -1", "C\x01c\x90O\x8f", 5, ruleNegative},
		{"object of fewer fields than defined", "C\x01c\x92\x01f\x01g\x60N", 9, ruleCount},
		{"reference -1", "Q\x8f", 1, ruleNegative},
		{"reference to a string", "Q\x01a", 1, ruleInt},
		{"type that is null", "VN\x90", 1, ruleType},
		{"type -1", "V\x8f\x90", 1, ruleNegative},
		{"end without a start", "Z", 0, ruleEnd},
		{"end in a list of known length", "\x79Z", 1, ruleEnd},
		{"end after a key", "HNZ", 2, ruleEnd},
		{"definitions without an object", strings.Repeat("C\x00\x90", 1000), 3000, ruleTruncated},
		{"open lists without an end", strings.Repeat("\x57", 500), 500, ruleTruncated},
		{"lists a million deep", strings.Repeat("\x57", 1_000_000), 512, limitDepth},
		{"maps a million deep", strings.Repeat("HN", 1_000_000), 1024, limitDepth},
	} {
		var d Decoder
		body := []byte(c.body)
		allocs := testing.AllocsPerRun(1, func() {
			d.Reset(body)
			err := d.Skip()
			if parseErr, ok := err.(*Error); !ok || parseErr.Offset != c.offset || parseErr.Rule != c.rule {
				t.Errorf("%s: %v, want byte %d: %s", c.name, err, c.offset, c.rule)
			}
		})
		if allocs > 1 {
			t.Errorf("%s: %v allocations in addition to the error, want 0", c.name, allocs-1)
		}
	}
}

func TestMalformedDraft(t *testing.T) {
	for _, c := range []struct {
		name, body string
		limits     Limits
		offset     int
		rule       string
	}{
		{"truncated class name", "O\x93ab", Limits{}, 4, ruleTruncated},
		{"class name without a length", "ON", Limits{}, 1, ruleInt},
		{"class name of length -1", "O\x8f", Limits{}, 1, ruleNegative},
		{"class name with a four-byte sequence", "O\x93a\xf0\x9f\x98\x80", Limits{}, 3, ruleText},
		{"class name beyond the limit", "O\x93abc\x90N", Limits{Length: 2}, 2, limitLength},
		{"truncated type", "Vt\x00\x03ab", Limits{}, 6, ruleTruncated},
		{"type without its length", "Vt\x00", Limits{}, 3, ruleTruncated},
		{"truncated type number", "Vu", Limits{}, 2, ruleTruncated},
		{"truncated length", "Vl\x00\x00", Limits{}, 4, ruleTruncated},
		{"list truncated after its tag", "V", Limits{}, 1, ruleTruncated},
		{"fixed list with a type's name", "v\x01t\x90", Limits{}, 1, ruleInt},
		{"fixed list of more values than bytes", "v\x90\x92T", Limits{}, 3, ruleCount},
		{"truncated reference", "\x4b\x00", Limits{}, 2, ruleTruncated},
		{"old marker without a type number", "MTz", Limits{}, 2, ruleInt},
		{"end after a key", "MNz", Limits{}, 2, ruleEnd},
		{"XML", "X\x00\x01a", Limits{}, 0, ruleTag},
		{"remote object", "rt\x00\x01a\x01u", Limits{}, 0, ruleTag},
	} {
		d := Decoder{Dialect: Draft, Limits: c.limits}
		d.Reset([]byte(c.body))
		err := d.Skip()
		if parseErr, ok := err.(*Error); !ok || parseErr.Offset != c.offset || parseErr.Rule != c.rule {
			t.Errorf("%s: %v, want byte %d: %s", c.name, err, c.offset, c.rule)
		}
	}
}

// TestDepthWithoutLimit verifies that Skip reads a million nested lists without a stack overflow.
func TestDepthWithoutLimit(t *testing.T) {
	const depth = 1_000_000
	d := Decoder{Limits: Limits{Depth: math.MaxInt}}
	d.Reset(nestedLists(depth))
	if err := d.Skip(); err != nil || d.Kind() != End || d.containers != depth {
		t.Errorf("%d containers, %v, then %v; want %d containers, then the end", d.containers, err, d.Kind(), depth)
	}
}

// TestReferencesAreNotFollowed verifies that Skip does not follow references, wherever they point.
func TestReferencesAreNotFollowed(t *testing.T) {
	for _, body := range []string{
		"\x79Q\x90",            // to the enclosing list
		"HQ\x90Q\x90Z",         // key and value
		"Q\x91Q\x90",           // to each other
		"QI\x7f\xff\xff\xff",   // to a container that does not exist
		"\x7aHNQ\x90ZHNQ\x91Z", // of many
	} {
		if _, err := walk(Final, []byte(body)); err != nil {
			t.Errorf("%q: %v, want no error", body, err)
		}
	}
}

// TestObjectsWithoutFields verifies that objects without fields, of one byte each, count as values.
func TestObjectsWithoutFields(t *testing.T) {
	const n = 100_000
	body := AppendInt([]byte("C\x01c\x90\x58"), n)
	body = append(body, bytes.Repeat([]byte{0x60}, n)...)
	d := newDecoder(Final, body)
	if err := d.Skip(); err != nil || d.values != n+1 {
		t.Errorf("%d values, %v, want %d", d.values, err, n+1)
	}
}
