package hessian

import (
	"math"
	"testing"
)

// TestKindOfEveryFirstByte compares Kind with the bytecode map of the specification (Hessian 2.0
// serialization 6), and with the Draft dialect as the SOFA library reads it.
func TestKindOfEveryFirstByte(t *testing.T) {
	type span struct {
		first, last int
		kind        Kind
	}
	common := []span{
		{0x00, 0x1f, String}, {0x20, 0x2f, Binary}, {0x38, 0x3f, Long},
		{'B', 'B', Binary}, {'D', 'D', Double}, {'F', 'F', Bool}, {'I', 'I', Int}, {'L', 'L', Long},
		{'M', 'M', Map}, {'N', 'N', Null}, {'O', 'O', Object}, {'S', 'S', String}, {'T', 'T', Bool}, {'V', 'V', List},
		{0x80, 0xd7, Int}, {0xd8, 0xff, Long},
	}
	for _, c := range []struct {
		name    string
		dialect Dialect
		spans   []span
	}{
		{"final", Final, []span{
			{0x30, 0x33, String}, {0x34, 0x37, Binary}, {'A', 'A', Binary}, {'C', 'C', Object}, {'H', 'H', Map},
			{0x4a, 0x4b, Date}, {0x51, 0x51, Ref}, {'R', 'R', String}, {0x55, 0x55, List}, {0x57, 0x58, List},
			{0x59, 0x59, Long}, {0x5b, 0x5f, Double}, {0x60, 0x6f, Object}, {0x70, 0x7f, List},
		}},
		{"draft", Draft, []span{
			{0x4a, 0x4b, Ref}, {'R', 'R', Ref}, {'b', 'b', Binary}, {'d', 'd', Date}, {0x67, 0x6b, Double},
			{'o', 'o', Object}, {'s', 's', String}, {'v', 'v', List}, {0x77, 0x77, Long},
		}},
	} {
		want := [256]Kind{}
		for _, s := range append(common, c.spans...) {
			for b := s.first; b <= s.last; b++ {
				want[b] = s.kind
			}
		}
		for b, kind := range want {
			d := newDecoder(c.dialect, []byte{byte(b)})
			if got := d.Kind(); got != kind {
				t.Errorf("%s: %#02x begins a %v, want %v", c.name, b, got, kind)
			}
			if err := d.Skip(); kind == Invalid && err == nil {
				t.Errorf("%s: Skip accepted %#02x", c.name, b)
			}
		}
	}
}

func TestKindsHaveNames(t *testing.T) {
	seen := map[string]Kind{}
	for k := Invalid; k <= Ref; k++ {
		if other, ok := seen[k.String()]; ok {
			t.Errorf("kinds %d and %d have the name %v", other, k, k)
		}
		seen[k.String()] = k
	}
	if got, want := Kind(200).String(), "kind 200"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		name string
		body string
		int  any // an int32, or the Rule of the error that Int returns
		long any // an int64, or the Rule of the error that Long returns
	}{
		{"int", "\x90", int32(0), int64(0)},
		{"5-byte int that fits in one byte", "I\x00\x00\x00\x01", int32(1), int64(1)},
		{"long that fits an int", "\xe1", int32(1), int64(1)},
		{"long of 5 bytes", "\x59\x80\x00\x00\x00", int32(math.MinInt32), int64(math.MinInt32)},
		{"long beyond an int", "L\x00\x00\x00\x00\x80\x00\x00\x00", ruleWantRange, int64(1 << 31)},
		{"string", "\x011", ruleWantNumber, ruleWantNumber},
		{"null", "N", ruleWantNumber, ruleWantNumber},
		{"double", "\x5b", ruleWantNumber, ruleWantNumber},
		{"empty body", "", ruleTruncated, ruleTruncated},
		{"truncated int", "I\x00\x00\x00", ruleTruncated, ruleTruncated},
	} {
		check := func(method string, got any, err error, offset int, want any) {
			t.Helper()
			rule, failed := want.(string)
			if !failed {
				if err != nil || got != want || offset != len(c.body) {
					t.Errorf("%s: %s = %v, %v at byte %d, want %v", c.name, method, got, err, offset, want)
				}
				return
			}
			if parseErr, ok := err.(*Error); !ok || parseErr.Rule != rule || offset != 0 {
				t.Errorf("%s: %s: %v at byte %d, want %q at byte 0", c.name, method, err, offset, rule)
			}
		}
		d := newDecoder(Final, []byte(c.body))
		i, err := d.Int()
		check("Int", i, err, d.Offset(), c.int)
		d.Reset([]byte(c.body))
		l, err := d.Long()
		check("Long", l, err, d.Offset(), c.long)
	}
}

func TestWrongKindIsRejected(t *testing.T) {
	for _, c := range []struct {
		name, body string
		read       func(*Decoder) error
		want       string
	}{
		{"bool from null", "N", func(d *Decoder) error { _, err := d.Bool(); return err }, ruleWantBool},
		{"bool from a list", "\x78", func(d *Decoder) error { _, err := d.Bool(); return err }, ruleWantBool},
		{"double from an int", "\x91", func(d *Decoder) error { _, err := d.Double(); return err }, ruleWantDouble},
		{"double from a string", "\x011", func(d *Decoder) error { _, err := d.Double(); return err }, ruleWantDouble},
		{"text from a date", "\x4b\x00\x00\x00\x00", func(d *Decoder) error { _, err := d.Text(); return err }, ruleWantText},
		{"text from a binary", "\x211", func(d *Decoder) error { _, err := d.Text(); return err }, ruleWantText},
		{"text from a map", "HZ", func(d *Decoder) error { _, err := d.Text(); return err }, ruleWantText},
		{"text from an empty body", "", func(d *Decoder) error { _, err := d.Text(); return err }, ruleTruncated},
		{"map from a list", "\x78", func(d *Decoder) error { _, err := d.Map(); return err }, ruleWantMap},
		{"map from a string", "\x00", func(d *Decoder) error { _, err := d.Map(); return err }, ruleWantMap},
		{"map from an empty body", "", func(d *Decoder) error { _, err := d.Map(); return err }, ruleTruncated},
	} {
		d := newDecoder(Final, []byte(c.body))
		err := c.read(d)
		if parseErr, ok := err.(*Error); !ok || parseErr.Rule != c.want || d.Offset() != 0 {
			t.Errorf("%s: %v at byte %d, want %q at byte 0", c.name, err, d.Offset(), c.want)
		}
	}
}

func TestErrorOffsets(t *testing.T) {
	for _, c := range []struct {
		err  Error
		want string
	}{
		{Error{Offset: 7, Rule: "so"}, "hessian: at byte 7: so"},
		{Error{Offset: 7, Rule: "too many", Limit: 3}, "hessian: at byte 7: too many (the limit is 3)"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
