package health

import (
	"bytes"
	"testing"
)

func TestAppendRequest(t *testing.T) {
	for service, want := range map[string]string{
		"":     "\x00\x00\x00\x00\x00",
		"shop": "\x00\x00\x00\x00\x06\x0a\x04shop",
	} {
		if got := appendRequest(nil, service); !bytes.Equal(got, []byte(want)) {
			t.Errorf("request for %q = %q, want %q", service, got, want)
		}
	}
}

func TestParseResponse(t *testing.T) {
	tests := []struct {
		name, content string
		ok            bool
	}{
		{"serving", "\x00\x00\x00\x00\x02\x08\x01", true},
		{"not serving", "\x00\x00\x00\x00\x02\x08\x02", false},
		{"default status, unknown", "\x00\x00\x00\x00\x00", false},
		{"status of two bytes", "\x00\x00\x00\x00\x03\x08\x81\x00", true},
		{"compressed", "\x01\x00\x00\x00\x02\x08\x01", false},
		{"no message", "", false},
		{"truncated message", "\x00\x00\x00\x00\x02\x08", false},
		{"two messages", "\x00\x00\x00\x00\x02\x08\x01\x00\x00\x00\x00\x02\x08\x01", false},
		{"incomplete varint", "\x00\x00\x00\x00\x02\x08\x81", false},
		{"another field", "\x00\x00\x00\x00\x02\x10\x01", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := parseResponse([]byte(tt.content)); (err == nil) != tt.ok {
				t.Errorf("parseResponse(%q) = %v, want ok %v", tt.content, err, tt.ok)
			}
		})
	}
}

func FuzzParseResponse(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x02\x08\x01"))
	f.Add([]byte("\x00\x00\x00\x00\x03\x08\x81\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if parseResponse(b) == nil && (len(b) < prefixLen+2 || b[prefixLen] != statusKey) {
			t.Errorf("parseResponse(%q) accepted a message without a status", b)
		}
	})
}
