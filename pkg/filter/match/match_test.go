package match

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/invariants"
	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

func TestStringMatcher(t *testing.T) {
	for _, test := range []struct {
		name            string
		config          StringMatcherConfig
		matching, other []string
	}{
		{"exact", StringMatcherConfig{Exact: new("a.b")}, []string{"a.b"}, []string{"", "a.bc", "xa.b", "A.b", "aXb"}},
		{"exact, empty text", StringMatcherConfig{Exact: new("")}, []string{""}, []string{"a"}},
		{"exact, ignore case", StringMatcherConfig{Exact: new("Ab"), IgnoreCase: true}, []string{"ab", "AB"}, []string{"abc", "äb"}},
		{"prefix", StringMatcherConfig{Prefix: new("/a/")}, []string{"/a/", "/a/b"}, []string{"/a", "/A/", "x/a/"}},
		{"prefix, ignore case", StringMatcherConfig{Prefix: new("/a/"), IgnoreCase: true}, []string{"/A/b"}, []string{"/b/a"}},
		{"suffix", StringMatcherConfig{Suffix: new(".test")}, []string{".test", "a.test"}, []string{"test", "a.TEST", "a.test."}},
		{"suffix, ignore case", StringMatcherConfig{Suffix: new(".test"), IgnoreCase: true}, []string{"A.TEST"}, []string{"TEST"}},
		{"contains", StringMatcherConfig{Contains: new("bc")}, []string{"bc", "abcd"}, []string{"", "b", "aBCd"}},
		{"contains, ignore case", StringMatcherConfig{Contains: new("bc"), IgnoreCase: true}, []string{"aBCd", "xbC"}, []string{"b", "acb"}},
		{"expression is anchored", StringMatcherConfig{SafeRegex: &Regex{Regex: "a+|b"}}, []string{"aa", "b"}, []string{"ab", "xb", ""}},
		{"dot matches line breaks", StringMatcherConfig{SafeRegex: &Regex{Regex: ".*admin.*"}}, []string{"admin", "a\nadmin\nb"}, []string{"a\nb"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := test.config.Compile()
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range test.matching {
				if !m.Matches(s) {
					t.Errorf("does not match %q", s)
				}
			}
			for _, s := range test.other {
				if m.Matches(s) {
					t.Errorf("matches %q", s)
				}
			}
		})
	}
	if zero := (StringMatcher{}); zero.Matches("") {
		t.Error("the zero StringMatcher matches an empty string")
	}
}

func TestInvalidStringMatchers(t *testing.T) {
	for name, test := range map[string]struct {
		config StringMatcherConfig
		want   string
	}{
		"no condition":                {StringMatcherConfig{}, "0 of exact"},
		"two conditions":              {StringMatcherConfig{Exact: new("a"), Prefix: new("b")}, "2 of exact"},
		"empty prefix":                {StringMatcherConfig{Prefix: new("")}, "prefix is empty"},
		"empty contains":              {StringMatcherConfig{Contains: new("")}, "contains is empty"},
		"invalid expression":          {StringMatcherConfig{SafeRegex: &Regex{Regex: "("}}, "missing closing"},
		"unbalanced parentheses":      {StringMatcherConfig{SafeRegex: &Regex{Regex: "a)|(b"}}, "unexpected )"},
		"expression, ignore case":     {StringMatcherConfig{SafeRegex: &Regex{Regex: "a"}, IgnoreCase: true}, "(?i)"},
		"expression too long":         {StringMatcherConfig{SafeRegex: &Regex{Regex: strings.Repeat("a", 5000)}}, "5000 bytes"},
		"expression expands too much": {StringMatcherConfig{SafeRegex: &Regex{Regex: "((a{30}){30}){20}"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := test.config.Compile(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Compile: %v, want %q in it", err, test.want)
			}
		})
	}
}

// newRequest returns GET shop.test/a?b with headers "name: value".
func newRequest(fields ...string) *protocol.Exchange {
	x := new(protocol.Exchange)
	r := &x.Request
	r.Method, r.Authority, r.Path, r.Scheme = "GET", "shop.test", "/a?b", "http"
	x.Meta.Conn = &protocol.ConnMeta{Remote: netip.MustParseAddrPort("192.0.2.1:50000")}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Add(name, value)
	}
	return x
}

func TestHeaderMatcher(t *testing.T) {
	blue := &StringMatcherConfig{Exact: new("blue")}
	for _, test := range []struct {
		name            string
		config          HeaderMatcherConfig
		matching, other []string // one header each; "": no header
	}{
		{"present", HeaderMatcherConfig{Name: "X-A"}, []string{"x-a: 1", "X-A: "}, []string{"", "x-b: 1"}},
		{"present_match true", HeaderMatcherConfig{Name: "x-a", Present: new(true)}, []string{"x-a: 1"}, []string{""}},
		{"present_match false", HeaderMatcherConfig{Name: "x-a", Present: new(false)}, []string{"", "x-b: 1"}, []string{"x-a: 1"}},
		{"inverted presence", HeaderMatcherConfig{Name: "x-a", Invert: true}, []string{""}, []string{"x-a: 1"}},
		{"string_match", HeaderMatcherConfig{Name: "x-a", String: blue}, []string{"x-a: blue"}, []string{"", "x-a: Blue", "x-a: blue2"}},
		{"inverted string_match", HeaderMatcherConfig{Name: "x-a", String: blue, Invert: true}, []string{"x-a: red", "x-a: "}, []string{"", "x-a: blue"}},
		{"inverted string_match, missing is empty", HeaderMatcherConfig{Name: "x-a", String: blue, Invert: true, MissingIsEmpty: true}, []string{"", "x-a: red"}, []string{"x-a: blue"}},
		{"inverted range_match", HeaderMatcherConfig{Name: "x-a", Range: &Int64Range{Start: 1, End: 10}, Invert: true}, []string{"x-a: 10", "x-a: a"}, []string{"", "x-a: 1"}},
		{"exact_match", HeaderMatcherConfig{Name: "x-a", Exact: new("blue")}, []string{"x-a: blue"}, []string{"x-a: blu"}},
		{"prefix_match", HeaderMatcherConfig{Name: "x-a", Prefix: new("bl")}, []string{"x-a: blue"}, []string{"x-a: red"}},
		{"suffix_match", HeaderMatcherConfig{Name: "x-a", Suffix: new("ue")}, []string{"x-a: blue"}, []string{"x-a: red"}},
		{"contains_match", HeaderMatcherConfig{Name: "x-a", Contains: new("lu")}, []string{"x-a: blue"}, []string{"x-a: red"}},
		{"safe_regex_match", HeaderMatcherConfig{Name: "x-a", SafeRegex: &Regex{Regex: "bl.*"}}, []string{"x-a: blue"}, []string{"x-a: a blue"}},
		{"range_match", HeaderMatcherConfig{Name: "x-a", Range: &Int64Range{Start: -1, End: 10}}, []string{"x-a: -1", "x-a: 9"}, []string{"x-a: 10", "x-a: 9a", "x-a: ", ""}},
		{"empty exact_match, missing is empty", HeaderMatcherConfig{Name: "x-a", Exact: new(""), MissingIsEmpty: true}, []string{"", "x-a: "}, []string{"x-a: 1"}},
		{":path", HeaderMatcherConfig{Name: ":path", Exact: new("/a?b")}, []string{"", ":path: /b"}, nil},
		{":method", HeaderMatcherConfig{Name: ":method", Exact: new("GET")}, []string{"method: PUT"}, nil},
		{":scheme", HeaderMatcherConfig{Name: ":scheme", Exact: new("http")}, []string{""}, nil},
		{"host", HeaderMatcherConfig{Name: "Host", Exact: new("shop.test")}, []string{""}, nil},
		{":authority", HeaderMatcherConfig{Name: ":authority", Exact: new("shop.test")}, []string{""}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, err := test.config.Compile()
			if err != nil {
				t.Fatal(err)
			}
			for want, list := range map[bool][]string{true: test.matching, false: test.other} {
				for _, field := range list {
					x := newRequest()
					if field != "" {
						x = newRequest(field)
					}
					if h.Matches(x) != want {
						t.Errorf("header %q: Matches = %t, want %t", field, !want, want)
					}
				}
			}
		})
	}
}

func TestHostOfRPCIsAttachment(t *testing.T) {
	x := newRequest("host: attachment")
	x.Request.Method, x.Request.Authority = "", "org.example.Shop"
	f, err := NewField("host")
	if err != nil {
		t.Fatal(err)
	}
	if v, ok, _ := f.Value(x, 0); v != "attachment" || !ok {
		t.Errorf("host = %q, want the attachment", v)
	}
}

func TestFieldsHaveOriginalPathAndAuthority(t *testing.T) {
	x := newRequest()
	x.Record.OriginalPath, x.Request.Path = x.Request.Path, "/rewritten"
	x.RewriteAuthority("rewritten.test")
	for name, want := range map[string]string{":path": "/a?b", ":authority": "shop.test", "host": "shop.test"} {
		f, err := NewField(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := f.Value(x, 0); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
}

func TestUnidentifiedCalls(t *testing.T) {
	newCall := func(fields ...string) *protocol.Exchange {
		x := newRequest(fields...)
		x.Request.Method = ""
		return x
	}
	ambiguous := newCall("service: a")
	ambiguous.Request.Body = &xprotocol.Message{View: xprotocol.FrameView{Ambiguous: true}}
	unambiguous := newCall("service: a")
	unambiguous.Request.Body = new(xprotocol.Message)
	for _, test := range []struct {
		name                     string
		x                        *protocol.Exchange
		unidentified, unreadable bool
	}{
		{"HTTP request", newRequest(), false, false},
		{"call of a service", newCall("service: a"), false, false},
		{"call with an unambiguous frame", unambiguous, false, false},
		{"call with an ambiguous frame", ambiguous, true, false},
		{"call without a service", newCall("a: b"), true, false},
		{"call without headers", newCall(), true, true},
	} {
		if got := IsUnidentifiedCall(test.x); got != test.unidentified {
			t.Errorf("%s: IsUnidentifiedCall = %t, want %t", test.name, got, test.unidentified)
		}
		if got := HasUnreadableHeader(test.x); got != test.unreadable {
			t.Errorf("%s: HasUnreadableHeader = %t, want %t", test.name, got, test.unreadable)
		}
	}
}

func TestHostIgnoresCase(t *testing.T) {
	for _, name := range []string{"host", ":authority"} {
		for condition, c := range map[string]HeaderMatcherConfig{
			"suffix":              {Name: name, Suffix: new(".Test")},
			"expression":          {Name: name, SafeRegex: &Regex{Regex: "x|shop\\.Test"}},
			"string_match, regex": {Name: name, String: &StringMatcherConfig{SafeRegex: &Regex{Regex: "x|shop\\.Test"}}},
		} {
			h, err := c.Compile()
			if err != nil {
				t.Fatal(err)
			}
			x := newRequest()
			for authority, want := range map[string]bool{"shop.test": true, "SHOP.TEST": true, "shop.test:80": false} {
				if x.Request.Authority = authority; h.Matches(x) != want {
					t.Errorf("%s, %s: Matches(%s) = %t, want %t", name, condition, authority, !want, want)
				}
			}
		}
	}
}

func TestAttachmentDoesNotOverrideMethod(t *testing.T) {
	f, err := NewField("method")
	if err != nil {
		t.Fatal(err)
	}
	x := newRequest("method: buy", "Method: sell")
	first, _, more := f.Value(x, 0)
	if second, _, _ := f.Value(x, 1); first != "buy" || !more || second != "sell" {
		t.Errorf("HTTP request: values %q and %q, want buy and sell", first, second)
	}
	x.Request.Method = ""
	if v, _, more := f.Value(x, 0); v != "buy" || more {
		t.Errorf("RPC request: %q, want only the method buy", v)
	}
}

func TestInvalidHeaderMatchers(t *testing.T) {
	for name, c := range map[string]HeaderMatcherConfig{
		"no name":               {},
		"unknown pseudo-header": {Name: ":status"},
		"two conditions":        {Name: "a", Exact: new("b"), Present: new(true)},
		"empty range":           {Name: "a", Range: &Int64Range{Start: 5, End: 5}},
		"invalid expression":    {Name: "a", SafeRegex: &Regex{Regex: "["}},
	} {
		if _, err := CompileHeaders("headers", []HeaderMatcherConfig{c}); err == nil || !strings.HasPrefix(err.Error(), "headers[0]: ") {
			t.Errorf("%s: %v, want an error that names headers[0]", name, err)
		}
	}
}

func TestCIDRSet(t *testing.T) {
	var prefixes []netip.Prefix
	for _, text := range []string{"10.0.0.0/8", "10.1.2.3", "9.255.255.255", "192.0.2.7/24", "::ffff:203.0.113.0/120", "2001:db8::/32", "fe80::1"} {
		p, err := ParsePrefix(text)
		if err != nil {
			t.Fatal(err)
		}
		prefixes = append(prefixes, p)
	}
	set := NewCIDRSet(prefixes)
	for addr, want := range map[string]bool{
		"10.0.0.0": true, "10.1.2.3": true, "10.255.255.255": true, "11.0.0.0": false, "9.255.255.255": true, "9.255.255.254": false,
		"192.0.2.0": true, "192.0.2.255": true, "192.0.3.0": false, "203.0.113.9": true, "::ffff:10.0.0.1": true,
		"2001:db8:ffff::1": true, "2001:db9::": false, "fe80::1": true, "fe80::2": false, "::": false, "0.0.0.0": false, "255.255.255.255": false,
	} {
		if got := set.Contains(netip.MustParseAddr(addr)); got != want {
			t.Errorf("Contains(%s) = %t, want %t", addr, got, want)
		}
	}
	if set.Contains(netip.Addr{}) {
		t.Error("Contains of the zero Addr = true")
	}
	if empty := (CIDRSet{}); empty.Contains(netip.MustParseAddr("10.0.0.1")) {
		t.Error("the empty set contains an address")
	}
	allIPv4 := NewCIDRSet([]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")})
	if !allIPv4.Contains(netip.MustParseAddr("255.255.255.255")) || allIPv4.Contains(netip.MustParseAddr("::1")) {
		t.Error("0.0.0.0/0 does not contain exactly the IPv4 addresses")
	}
}

func TestInvalidRanges(t *testing.T) {
	for _, text := range []string{"", "10.0.0.0/33", "10.0.0", "10.0.0.1/", "fe80::1%eth0", "host.test", "10.0.0.1:80"} {
		if p, err := ParsePrefix(text); err == nil {
			t.Errorf("ParsePrefix(%q) = %v, want an error", text, p)
		}
	}
	for _, c := range []CIDRRangeConfig{{"10.0.0.0", 33}, {"host", 8}, {"::1", 129}} {
		if p, err := c.Compile(); err == nil {
			t.Errorf("Compile of %v = %v, want an error", c, p)
		}
	}
}

func TestClientAddrTrustedHops(t *testing.T) {
	const peer = "192.0.2.1"
	for _, test := range []struct {
		name   string
		client ClientAddr
		fields []string
		want   string // "": ErrNoAddress
	}{
		{"no header configured", ClientAddr{}, []string{"X-Forwarded-For: 10.0.0.1"}, peer},
		{"last address", NewClientAddr("x-forwarded-for", 0), []string{"X-Forwarded-For: 10.0.0.1, 10.0.0.2"}, "10.0.0.2"},
		{"one trusted hop", NewClientAddr("x-forwarded-for", 1), []string{"X-Forwarded-For: 10.0.0.1, 10.0.0.2,10.0.0.3"}, "10.0.0.2"},
		{"two headers", NewClientAddr("x-forwarded-for", 2), []string{"x-forwarded-for: 10.0.0.1", "A: b", "X-Forwarded-For: 10.0.0.2, 10.0.0.3"}, "10.0.0.1"},
		{"fewer addresses than trusted hops", NewClientAddr("x-forwarded-for", 2), []string{"X-Forwarded-For: 10.0.0.1, 10.0.0.2"}, peer},
		{"header missing", NewClientAddr("x-forwarded-for", 0), nil, peer},
		{"IPv4 with a port", NewClientAddr("x", 0), []string{"X: 10.0.0.1:80"}, "10.0.0.1"},
		{"IPv6", NewClientAddr("x", 0), []string{"X: 2001:db8::1"}, "2001:db8::1"},
		{"IPv6 in brackets", NewClientAddr("x", 0), []string{"X: [2001:db8::1]"}, "2001:db8::1"},
		{"IPv6 with a port", NewClientAddr("x", 0), []string{"X: [2001:db8::1]:80"}, "2001:db8::1"},
		{"IPv4-mapped IPv6", NewClientAddr("x", 0), []string{"X: ::ffff:10.0.0.1"}, "10.0.0.1"},
		{"name instead of an address", NewClientAddr("x", 0), []string{"X: unknown"}, ""},
		{"empty last entry", NewClientAddr("x", 0), []string{"X: 10.0.0.1,"}, ""},
		{"empty header", NewClientAddr("x", 0), []string{"X: "}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			call := newRequest(test.fields...)
			call.Request.Method = ""
			if got, err := test.client.Address(call); err != nil || got.String() != peer {
				t.Errorf("Address of an RPC call = %v, %v; want %s", got, err, peer)
			}
			got, err := test.client.Address(newRequest(test.fields...))
			if test.want == "" {
				if !errors.Is(err, ErrNoAddress) {
					t.Fatalf("Address = %v, %v; want %v", got, err, ErrNoAddress)
				}
				return
			}
			if err != nil || got.String() != test.want {
				t.Errorf("Address = %v, %v; want %s", got, err, test.want)
			}
		})
	}
}

func TestClientAddrOfListener(t *testing.T) {
	x := newRequest("X-Forwarded-For: 10.0.0.1")
	x.Meta.Client = netip.MustParseAddr("203.0.113.9")
	for _, test := range []struct {
		client ClientAddr
		want   string
	}{
		{ClientAddr{}, "203.0.113.9"},
		{NewClientAddr("x-forwarded-for", 0), "10.0.0.1"},
		{NewClientAddr("x-forwarded-for", 1), "192.0.2.1"},
	} {
		if got, err := test.client.Address(x); err != nil || got.String() != test.want {
			t.Errorf("%v: Address = %v, %v; want %s", test.client, got, err, test.want)
		}
	}
	if got := RemoteAddr(x); got.String() != "192.0.2.1" {
		t.Errorf("RemoteAddr = %v, want the address of the connection", got)
	}
}

func TestFractions(t *testing.T) {
	for _, test := range []struct {
		name        string
		config      *RuntimeFractionConfig
		minSelected int // of 10,000 requests
		maxSelected int
	}{
		{"absent", nil, 10_000, 10_000},
		{"all", &RuntimeFractionConfig{Default: FractionConfig{100, "HUNDRED"}}, 10_000, 10_000},
		{"none", &RuntimeFractionConfig{}, 0, 0},
		{"half", &RuntimeFractionConfig{Default: FractionConfig{5000, "TEN_THOUSAND"}}, 4700, 5300}, // six standard deviations
		{"half a million", &RuntimeFractionConfig{Default: FractionConfig{500_000, "MILLION"}}, 4700, 5300},
	} {
		fraction, err := test.config.Compile(AllRequests())
		if err != nil {
			t.Fatal(err)
		}
		hits := 0
		for range 10_000 {
			if fraction.Sample() {
				hits++
			}
		}
		if hits < test.minSelected || hits > test.maxSelected || fraction.IsZero() != (test.maxSelected == 0) {
			t.Errorf("%s: selected %d of 10,000, want %d to %d", test.name, hits, test.minSelected, test.maxSelected)
		}
	}
	if _, err := (&RuntimeFractionConfig{Default: FractionConfig{101, "HUNDRED"}}).Compile(AllRequests()); err == nil {
		t.Error("Compile accepted 101 of 100")
	}
}

func TestConditionsDoNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("under the race detector, sync.Pool drops some of the matching state of package regexp")
	}
	x := newRequest("X-Tenant: blue", "X-Forwarded-For: 10.0.0.1, 10.0.0.2")
	h, err := (&HeaderMatcherConfig{Name: "x-tenant", String: &StringMatcherConfig{SafeRegex: &Regex{Regex: "b.*e"}}}).Compile()
	if err != nil {
		t.Fatal(err)
	}
	client := NewClientAddr("x-forwarded-for", 1)
	set := NewCIDRSet([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	if n := testing.AllocsPerRun(100, func() {
		addr, err := client.Address(x)
		if err != nil || !set.Contains(addr) || !h.Matches(x) {
			t.Fatal("a condition does not match")
		}
	}); n != 0 {
		t.Errorf("conditions allocate %v times, want 0", n)
	}
}

func FuzzAddress(f *testing.F) {
	for _, seed := range []string{"10.0.0.1", "a, b", ",", "[::1]:80", "::ffff:1.2.3.4", "[]", "[", "%", "fe80::1%a"} {
		f.Add(seed, 1)
	}
	f.Fuzz(func(t *testing.T, value string, hops int) {
		x := newRequest()
		x.Request.Header.Add("x", value)
		client := NewClientAddr("x", hops%8)
		if addr, err := client.Address(x); err == nil && (addr.Zone() != "" || addr.Is4In6() || !addr.IsValid()) {
			t.Errorf("Address of %q = %v, want an IPv4 or IPv6 address without a zone", value, addr)
		}
	})
}
