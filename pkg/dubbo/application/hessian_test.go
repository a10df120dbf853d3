package application

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadValue(t *testing.T) {
	tests := []struct {
		name, body string
		want       any
	}{
		{"null", "N", nil},
		{"number", "\x97", int64(7)},
		{"string", "\x02ab", "ab"},
		{"map", "H\x01a\x91\x01bTZ", map[string]any{"a": int64(1), "b": true}},
		{"two typed maps", "H\x01aM\x01tZ\x01bM\x90ZZ", map[string]any{"a": map[string]any{}, "b": map[string]any{}}},
		{"object", "C\x01x\x92\x01a\x01b`\x91\x01c", map[string]any{"a": int64(1), "b": "c"}},
		{"object with a class number", "C\x01x\x91\x01aO\x90\x91", map[string]any{"a": int64(1)}},
		{"untyped list of fixed length", "\x7a\x91\x92", []any{int64(1), int64(2)}},
		{"typed list, length in the tag", "\x71\x01t\x91", []any{int64(1)}},
		{"typed list with a length", "V\x01t\x91\x91", []any{int64(1)}},
		{"untyped list with a length", "X\x91\x91", []any{int64(1)}},
		{"list of variable length", "W\x91Z", []any{int64(1)}},
		{"typed list of variable length", "U\x01t\x91Z", []any{int64(1)}},
		{"reference", "H\x01aHZ\x01bQ\x91Z", map[string]any{"a": map[string]any{}, "b": map[string]any{}}},
		{"ignored scalar", "H\x01aD\x00\x00\x00\x00\x00\x00\x00\x00\x91\x91Z", map[string]any{"a": nil}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &hessianReader{body: []byte(tt.body)}
			got, err := r.readValue(0)
			if err != nil || r.offset != len(tt.body) {
				t.Fatalf("readValue = %v, %v after %d of %d bytes; want no error and no remaining bytes", got, err, r.offset, len(tt.body))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadInvalidValue(t *testing.T) {
	for _, body := range []string{
		"", "Z", "`", "O\x95", "Q\x90", "H", "H\x01a", "C", "C\x01x\x92\x01a", "C\x01x\x91\x91`", "M\x95Z", "V\x01t\x01t", "W\x91", "\x79", "C\x01xI\x7f\xff\xff\xff",
		strings.Repeat("W", 100), strings.Repeat("C\x01x\x90", 100) + "`",
	} {
		r := &hessianReader{body: []byte(body)}
		if got, err := r.readValue(0); err == nil {
			t.Errorf("readValue(%q) = %v, want an error", body, got)
		}
	}
}

func FuzzResponse(f *testing.F) {
	response, err := os.ReadFile("testdata/local.bin")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(response)
	f.Add([]byte("\x91H\x08servicesH\x01aC\x01x\x92\x04name\x06params`\x01xHZZZ"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if info, err := parseResponse(body); err == nil && info.Len() > len(body) {
			t.Errorf("%d services in %d bytes, want at most one service per byte", info.Len(), len(body))
		}
	})
}
