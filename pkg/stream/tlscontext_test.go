package stream

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestSANMatcherConditions verifies that the conditions on names match like Envoy's StringMatcher,
// which ignores the case of ASCII letters only.
func TestSANMatcherConditions(t *testing.T) {
	for _, test := range []struct {
		name  string
		match config.ValueMatch
		text  string
		want  bool
	}{
		{"exact", config.ValueMatch{Text: "spiffe://a/b"}, "spiffe://a/b", true},
		{"exact, longer name", config.ValueMatch{Text: "spiffe://a/b"}, "spiffe://a/bc", false},
		{"exact, other case", config.ValueMatch{Text: "spiffe://a/b"}, "spiffe://a/B", false},
		{"exact, case ignored", config.ValueMatch{Text: "spiffe://a/b", IgnoreCase: true}, "SPIFFE://A/B", true},
		{"prefix", config.ValueMatch{Kind: config.ValuePrefix, Text: "spiffe://a/"}, "spiffe://a/b", true},
		{"prefix, case ignored", config.ValueMatch{Kind: config.ValuePrefix, Text: "spiffe://A/", IgnoreCase: true}, "spiffe://a/b", true},
		{"prefix, shorter name", config.ValueMatch{Kind: config.ValuePrefix, Text: "spiffe://a/"}, "spiffe", false},
		{"suffix", config.ValueMatch{Kind: config.ValueSuffix, Text: "/b"}, "spiffe://a/b", true},
		{"suffix, other case", config.ValueMatch{Kind: config.ValueSuffix, Text: "/B"}, "spiffe://a/b", false},
		{"suffix, case ignored", config.ValueMatch{Kind: config.ValueSuffix, Text: "/B", IgnoreCase: true}, "spiffe://a/b", true},
		{"contains", config.ValueMatch{Kind: config.ValueContains, Text: "//a"}, "spiffe://a/b", true},
		{"contains, case ignored", config.ValueMatch{Kind: config.ValueContains, Text: "//A", IgnoreCase: true}, "spiffe://a/b", true},
		{"regex", config.ValueMatch{Kind: config.ValueRegex, Text: "spiffe://[^/]+/b"}, "spiffe://a/b", true},
		{"regex matches only a part", config.ValueMatch{Kind: config.ValueRegex, Text: "spiffe://[^/]+|x"}, "spiffe://a/b", false},
		{"case of letters outside ASCII", config.ValueMatch{Text: "\u00c4", IgnoreCase: true}, "\u00e4", false},
		{"the Kelvin sign is not k", config.ValueMatch{Text: "\u212a", IgnoreCase: true}, "k", false},
		{"a name with the Kelvin sign", config.ValueMatch{Kind: config.ValueContains, Text: "k", IgnoreCase: true}, "\u212a", false},
	} {
		m, err := newSANMatcher(&config.SANMatcher{Type: config.SANTypeURI, Name: test.match})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Name.MatchValue(test.text); got != test.want {
			t.Errorf("%s: %+v matches %q: %v, want %v", test.name, test.match, test.text, got, test.want)
		}
	}
}

func TestExactDNSNameIsComparedAsHostName(t *testing.T) {
	m, err := newSANMatcher(&config.SANMatcher{Type: config.SANTypeDNS, Name: config.ValueMatch{Text: "a.example"}})
	if err != nil || m.DNSName != "a.example" {
		t.Errorf("newSANMatcher = %+v, %v; want the DNSName a.example", m, err)
	}
}
