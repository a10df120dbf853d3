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
		{"no field", nil, both, Identity},
		{"an empty field", []string{""}, both, Identity},
		{"gzip alone", []string{"gzip"}, both, Gzip},
		{"gzip by its old name", []string{"x-gzip"}, both, Gzip},
		{"in any case", []string{"GZip"}, both, Gzip},
		{"of equals the first that is offered", []string{"gzip, zstd"}, both, Zstd},
		{"of equals the first that is offered, the other way", []string{"gzip, zstd"}, []Coding{Gzip, Zstd}, Gzip},
		{"the greater weight", []string{"gzip;q=0.9, zstd;q=0.8"}, both, Gzip},
		{"weights with spaces", []string{"gzip ; q=0.2 , zstd\t;\tQ=0.10"}, both, Gzip},
		{"three digits", []string{"gzip;q=0.001, zstd;q=0.002"}, both, Zstd},
		{"fields that are divided", []string{"br", "gzip"}, both, Gzip},
		{"a weight of nothing", []string{"gzip;q=0"}, both, Identity},
		{"a weight of nothing, with digits", []string{"gzip;q=0.000, *;q=0.5"}, []Coding{Gzip}, Identity},
		{"anything", []string{"*"}, both, Zstd},
		{"anything but one", []string{"*, zstd;q=0"}, both, Gzip},
		{"what is not offered", []string{"br, deflate"}, both, Identity},
		{"rather as it is", []string{"identity, gzip;q=0.5"}, both, Identity},
		{"as it is, and as gladly gzip", []string{"identity;q=0.5, gzip;q=0.5"}, both, Gzip},
		{"anything but as it is", []string{"identity;q=0, gzip;q=0.1"}, both, Gzip},
		{"nothing is acceptable", []string{"identity;q=0, *;q=0"}, both, Identity},
		{"a weight above one is none", []string{"gzip;q=1.5, zstd;q=0.1"}, both, Zstd},
		{"a weight of four digits is none", []string{"gzip;q=0.0001"}, both, Identity},
		{"a weight that is no number is none", []string{"gzip;q=a, gzip;q=, gzip;q=1.0x"}, both, Identity},
		{"a parameter that is no weight", []string{"gzip;level=9"}, both, Identity},
		{"empty members", []string{", ,gzip,,"}, both, Gzip},
		{"a name that only begins so", []string{"gzipped"}, both, Identity},
	} {
		t.Run(test.name, func(t *testing.T) {
			var h protocol.Header
			h.Add("Accept", "gzip")
			for _, value := range test.fields {
				h.Add("accept-encoding", value)
			}
			if got := Negotiate(&h, test.offered); got != test.want {
				t.Errorf("Choose(%q) = %v, want %v", test.fields, got, test.want)
			}
		})
	}
}

func TestNegotiateDoesNotAllocate(t *testing.T) {
	var h protocol.Header
	h.Add("Accept-Encoding", "gzip, deflate, br;q=0.9, zstd;q=0.5, *;q=0.1")
	offered := []Coding{Zstd, Gzip}
	if n := testing.AllocsPerRun(100, func() { Negotiate(&h, offered) }); n != 0 {
		t.Errorf("Choose allocates %v times, want 0", n)
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
			t.Errorf("Choose(%q) = %v, which is not offered", value, got)
		}
	})
}
