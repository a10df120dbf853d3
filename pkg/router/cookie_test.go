package router

import (
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestCookieMatch verifies conditions on cookies with the results of Envoy 1.40.
func TestCookieMatch(t *testing.T) {
	exact := config.ValueMatch{Text: "v"}
	for _, test := range []struct {
		name    string
		match   config.CookieMatch
		cookies []string
		want    bool
	}{
		{"the only cookie", config.CookieMatch{Name: "s", Matcher: exact}, []string{"s=v"}, true},
		{"another value", config.CookieMatch{Name: "s", Matcher: exact}, []string{"s=x"}, false},
		{"a missing cookie", config.CookieMatch{Name: "s", Matcher: exact}, nil, false},
		{"among others", config.CookieMatch{Name: "s", Matcher: exact}, []string{"a=1; s=v; b"}, true},
		{"without a space", config.CookieMatch{Name: "s", Matcher: exact}, []string{"a=1;s=v"}, true},
		{"the first of two counts", config.CookieMatch{Name: "s", Matcher: exact}, []string{"s=v; s=x"}, true},
		{"the second of two does not count", config.CookieMatch{Name: "s", Matcher: exact}, []string{"s=x; s=v"}, false},
		{"in the second header", config.CookieMatch{Name: "s", Matcher: exact}, []string{"a=1", "s=v"}, true},
		{"the first of two headers counts", config.CookieMatch{Name: "s", Matcher: exact}, []string{"s=x", "s=v"}, false},
		{"quotes", config.CookieMatch{Name: "s", Matcher: exact}, []string{`s="v"`}, true},
		{"one quote", config.CookieMatch{Name: "s", Matcher: exact}, []string{`s="v`}, false},
		{"a space before =", config.CookieMatch{Name: "s", Matcher: exact}, []string{"s =v"}, false},
		{"a space after the value", config.CookieMatch{Name: "s", Matcher: exact}, []string{"s=v ; a=1"}, false},
		{"another case of the name", config.CookieMatch{Name: "s", Matcher: exact}, []string{"S=v"}, false},
		{"= in the value", config.CookieMatch{Name: "s", Matcher: config.ValueMatch{Kind: config.ValueRegex, Text: "v.."}}, []string{"s=v=w"}, true},
		{"a comma does not separate", config.CookieMatch{Name: "s", Matcher: exact}, []string{"s=v, b=c"}, false},
		{"percent-encoding is not decoded", config.CookieMatch{Name: "s", Matcher: exact}, []string{"s=%76"}, false},
		{"an empty value", config.CookieMatch{Name: "s"}, []string{"s="}, true},
		{"an empty value in quotes", config.CookieMatch{Name: "s"}, []string{`s=""`}, true},
		{"no =", config.CookieMatch{Name: "s"}, []string{"s"}, false},
		{"ignored case", config.CookieMatch{Name: "s", Matcher: config.ValueMatch{Text: "V", IgnoreCase: true}}, []string{"s=v"}, true},
		{"inverted", config.CookieMatch{Name: "s", Matcher: exact, Invert: true}, []string{"s=v"}, false},
		{"inverted, another value", config.CookieMatch{Name: "s", Matcher: exact, Invert: true}, []string{"s=x; s=v"}, true},
		{"inverted, a missing cookie", config.CookieMatch{Name: "s", Matcher: exact, Invert: true}, nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := request("GET", "a.test", "/")
			for _, c := range test.cookies {
				x.Request.Header.Add("Cookie", c)
			}
			table := mustCompile(t, forward("r", config.RouteMatch{Cookies: []config.CookieMatch{test.match}}))
			if got := table.Match(x) != nil; got != test.want {
				t.Errorf("cookies %q match = %v, want %v", test.cookies, got, test.want)
			}
			e := table.Explain(x)
			if got := e.Route != nil; got != test.want {
				t.Errorf("cookies %q: explained match = %v, want %v; reasons %q", test.cookies, got, test.want, e.Routes[0].Reasons)
			}
			if n := testing.AllocsPerRun(10, func() { table.Find(x) }); n != 0 {
				t.Errorf("Find allocates %v times, want 0", n)
			}
		})
	}
}

func TestExplainedCookies(t *testing.T) {
	table := mustCompile(t, forward("r", config.RouteMatch{Cookies: []config.CookieMatch{
		{Name: "s", Matcher: config.ValueMatch{Text: "v"}}, {Name: "t", Matcher: config.ValueMatch{Text: "w"}, Invert: true},
	}}))
	got := table.Explain(request("GET", "a.test", "/", "cookie", "t=w")).Routes[0].Reasons
	want := []string{`cookie s is missing, expected "v"`, `cookie t is "w", expected anything except "w"`}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("reasons = %q, want %q", got, want)
	}
}

// FuzzCookieValue verifies that each value is a part of the header, for any header.
func FuzzCookieValue(f *testing.F) {
	f.Add(`a=1; s="v"; b`, "s")
	f.Fuzz(func(t *testing.T, header, name string) {
		x := request("GET", "a.test", "/", "cookie", header)
		if value, ok := cookieValue(&x.Request.Header, name); !ok && value != "" || len(value) > len(header) {
			t.Errorf("cookieValue(%q, %q) = %q, %v", header, name, value, ok)
		}
	})
}
