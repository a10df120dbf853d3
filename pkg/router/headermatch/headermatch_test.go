package headermatch

import (
	"regexp"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func header(values ...string) *protocol.Header {
	h := new(protocol.Header)
	h.Add("x-other", "admin")
	for i, value := range values {
		name := "x-r"
		if i%2 == 1 {
			name = "X-R"
		}
		h.Add(name, value)
	}
	return h
}

func compile(m config.ValueMatch) Matcher {
	if m.Kind != config.ValueRegex {
		return New(m, nil)
	}
	return New(m, regexp.MustCompile(`^(?:`+m.Text+`)$`))
}

// TestRepeatedValuesAreMatchedSeparately expects the results of Envoy 1.40.0 for the same
// conditions and headers. In Envoy they are the same for RBAC, routes and faults.
func TestRepeatedValuesAreMatchedSeparately(t *testing.T) {
	conditions := []struct {
		name string
		m    config.ValueMatch
		want string // the requests that match, by the letters below
	}{
		{"exact", config.ValueMatch{Text: "admin"}, "adf"},
		{"exact, inverted", config.ValueMatch{Text: "admin", Invert: true}, "uc3"},
		{"exact, inverted, missing is empty", config.ValueMatch{Text: "admin", Invert: true, TreatMissingAsEmpty: true}, "-uc3"},
		{"exact joined values", config.ValueMatch{Text: "user,admin"}, "c"},
		{"prefix", config.ValueMatch{Kind: config.ValuePrefix, Text: "adm"}, "adf"},
		{"suffix", config.ValueMatch{Kind: config.ValueSuffix, Text: "min"}, "adcf"},
		{"contains", config.ValueMatch{Kind: config.ValueContains, Text: "dmi"}, "adcf"},
		{"contains a part of the joined values", config.ValueMatch{Kind: config.ValueContains, Text: "r,a"}, "c"},
		{"expression", config.ValueMatch{Kind: config.ValueRegex, Text: "a.*n"}, "adf"},
		{"expression for joined values", config.ValueMatch{Kind: config.ValueRegex, Text: "user,admin"}, "c"},
		{"present", config.ValueMatch{Kind: config.ValuePresent}, "audcf3"},
		{"absent", config.ValueMatch{Kind: config.ValuePresent, Invert: true}, "-"},
		{"range", config.ValueMatch{Kind: config.ValueRange, From: 1, To: 5}, "3"},
		{"range, inverted", config.ValueMatch{Kind: config.ValueRange, From: 1, To: 5, Invert: true}, "audcf"},
	}
	requests := map[string]*protocol.Header{
		"-": header(),
		"a": header("admin"),
		"u": header("user"),
		"d": header("user", "admin"),
		"c": header("user,admin"),
		"f": header("", "admin", "user"),
		"3": header("9", "3"),
	}
	for _, condition := range conditions {
		m := compile(condition.m)
		for letter, h := range requests {
			if got, want := m.MatchHeader(h, "x-r"), strings.Contains(condition.want, letter); got != want {
				t.Errorf("condition %s, request %s: MatchHeader = %t, want %t", condition.name, letter, got, want)
			}
		}
	}
}

func TestMatchHeaderDoesNotAllocate(t *testing.T) {
	m := compile(config.ValueMatch{Text: "admin", Invert: true})
	h := header("user", "guest", "admin")
	if n := testing.AllocsPerRun(100, func() { m.MatchHeader(h, "x-r") }); n != 0 {
		t.Errorf("MatchHeader allocates %v times, want 0", n)
	}
}

func BenchmarkMatchHeader(b *testing.B) {
	for name, h := range map[string]*protocol.Header{"single header": header("admin"), "three headers": header("user", "guest", "admin")} {
		b.Run(name, func(b *testing.B) {
			m := compile(config.ValueMatch{Text: "admin"})
			b.ReportAllocs()
			for b.Loop() {
				if !m.MatchHeader(h, "x-r") {
					b.Fatal("no match")
				}
			}
		})
	}
}
