package coding

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestNegotiate(t *testing.T) {
	both := []Coding{Zstd, Gzip}
	for _, test := range []struct {
		name    string
		fields  []string // Accept-Encoding
		offered []Coding
		want    Coding
	}{
		{"no header", nil, both, Identity},
		{"empty header", []string{""}, both, Identity},
		{"gzip only", []string{"gzip"}, both, Gzip},
		{"x-gzip", []string{"x-gzip"}, both, Gzip},
		{"mixed case", []string{"GZip"}, both, Gzip},
		{"equal weights, zstd offered first", []string{"gzip, zstd"}, both, Zstd},
		{"equal weights, gzip offered first", []string{"gzip, zstd"}, []Coding{Gzip, Zstd}, Gzip},
		{"greater weight", []string{"gzip;q=0.9, zstd;q=0.8"}, both, Gzip},
		{"weights with spaces", []string{"gzip ; q=0.2 , zstd\t;\tQ=0.10"}, both, Gzip},
		{"weights with three digits", []string{"gzip;q=0.001, zstd;q=0.002"}, both, Zstd},
		{"two headers", []string{"br", "gzip"}, both, Gzip},
		{"weight 0", []string{"gzip;q=0"}, both, Identity},
		{"weight 0.000", []string{"gzip;q=0.000, *;q=0.5"}, []Coding{Gzip}, Identity},
		{"wildcard", []string{"*"}, both, Zstd},
		{"wildcard without zstd", []string{"*, zstd;q=0"}, both, Gzip},
		{"codings that are not offered", []string{"br, deflate"}, both, Identity},
		{"identity preferred", []string{"identity, gzip;q=0.5"}, both, Identity},
		{"identity and gzip with equal weights", []string{"identity;q=0.5, gzip;q=0.5"}, both, Gzip},
		{"identity not acceptable", []string{"identity;q=0, gzip;q=0.1"}, both, Gzip},
		{"no coding acceptable", []string{"identity;q=0, *;q=0"}, both, Identity},
		{"weight above 1 is invalid", []string{"gzip;q=1.5, zstd;q=0.1"}, both, Zstd},
		{"weight with four digits is invalid", []string{"gzip;q=0.0001"}, both, Identity},
		{"weight that is not a number is invalid", []string{"gzip;q=a, gzip;q=, gzip;q=1.0x"}, both, Identity},
		{"parameter other than q is invalid", []string{"gzip;level=9"}, both, Identity},
		{"empty members", []string{", ,gzip,,"}, both, Gzip},
		{"gzip as a prefix of the name", []string{"gzipped"}, both, Identity},
	} {
		t.Run(test.name, func(t *testing.T) {
			var h protocol.Header
			h.Add("Accept", "gzip")
			for _, value := range test.fields {
				h.Add("accept-encoding", value)
			}
			if got := Negotiate(&h, test.offered); got != test.want {
				t.Errorf("Negotiate(%q) = %v, want %v", test.fields, got, test.want)
			}
		})
	}
}

func TestNegotiateDoesNotAllocate(t *testing.T) {
	var h protocol.Header
	h.Add("Accept-Encoding", "gzip, deflate, br;q=0.9, zstd;q=0.5, *;q=0.1")
	offered := []Coding{Zstd, Gzip}
	if n := testing.AllocsPerRun(100, func() { Negotiate(&h, offered) }); n != 0 {
		t.Errorf("Negotiate allocates %v times, want 0", n)
	}
}

func FuzzNegotiate(f *testing.F) {
	for _, seed := range []string{"", "gzip", "gzip;q=0.5, *;q=0", ";q=1,;,=", "gzip;q=", "identity;q=0,*;q=0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		var h protocol.Header
		h.Add("Accept-Encoding", value)
		if got := Negotiate(&h, []Coding{Gzip}); got != Identity && got != Gzip {
			t.Errorf("Negotiate(%q) = %v, which is not offered", value, got)
		}
	})
}
