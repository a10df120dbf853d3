package router

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/internal/hash"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// hashRoute returns a route with hash policies.
func hashRoute(t *testing.T, x *protocol.Exchange, policies ...config.HashPolicy) *Route {
	t.Helper()
	return compileAndMatch(t, &config.Route{Forward: &config.Forward{Cluster: "c", HashPolicies: policies}}, x)
}

func TestHashUsesFirstPolicyWithValue(t *testing.T) {
	user, session := config.HashPolicy{Header: "X-User"}, config.HashPolicy{Cookie: "session"}
	source, query := config.HashPolicy{SourceIP: true}, config.HashPolicy{Query: "id"}
	tests := []struct {
		name     string
		policies []config.HashPolicy
		path     string
		headers  []string
		want     uint64
	}{
		{"header in another case", []config.HashPolicy{user}, "/", []string{"x-user", "ann"}, hash.String("ann")},
		{"repeated header", []config.HashPolicy{user}, "/", []string{"x-user", "ann", "X-User", "bob"}, hash.String("ann") + hash.String("bob")},
		{"repeated header in another order", []config.HashPolicy{user}, "/", []string{"x-user", "bob", "X-User", "ann"}, hash.String("ann") + hash.String("bob")},
		{"empty header", []config.HashPolicy{user}, "/", []string{"x-user", ""}, hash.String("")},
		{"missing header", []config.HashPolicy{user}, "/", nil, 0},
		{"the path", []config.HashPolicy{{Header: ":path"}}, "/a?b", nil, hash.String("/a?b")},
		{"the authority", []config.HashPolicy{{Header: ":authority"}}, "/", nil, hash.String("a.test")},
		{"the method", []config.HashPolicy{{Header: ":method"}}, "/", nil, hash.String("GET")},
		{"the scheme", []config.HashPolicy{{Header: ":scheme"}}, "/", nil, hash.String("http")},
		{"a cookie", []config.HashPolicy{session}, "/", []string{"Cookie", "a=b; session=s1"}, hash.String("s1")},
		{"cookie created by SetCookie", []config.HashPolicy{session}, "/", []string{"Cookie", "session=00000000000000ff"}, 255},
		{"cookie with an invalid digit", []config.HashPolicy{session}, "/", []string{"Cookie", "session=00000000000000fg"}, hash.String("00000000000000fg")},
		{"cookie with only zeros", []config.HashPolicy{session}, "/", []string{"Cookie", "session=0000000000000000"}, 1},
		{"query parameter", []config.HashPolicy{query}, "/?x=1&id=7", nil, hash.String("7")},
		{"missing query parameter", []config.HashPolicy{query}, "/?x=1", nil, 0},
		{"client address", []config.HashPolicy{source}, "/", nil, hash.String("192.0.2.1")},
		{"second policy if the first has no value", []config.HashPolicy{user, source}, "/", nil, hash.String("192.0.2.1")},
		{"first policy before the second", []config.HashPolicy{user, source}, "/", []string{"X-User", "ann"}, hash.String("ann")},
		{"no policies", nil, "/", nil, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := request("GET", "a.test", tt.path, tt.headers...)
			x.Request.Scheme = "http"
			x.Meta.Conn = &protocol.ConnMeta{Remote: netip.MustParseAddrPort("192.0.2.1:5"), RemoteIP: "192.0.2.1"}
			r := hashRoute(t, x, tt.policies...)
			if got, newCookie := r.Hash(x, 99); got != tt.want || newCookie {
				t.Errorf("Hash = %#x, %v, want %#x, false", got, newCookie, tt.want)
			}
			if r.Hashes() != (len(tt.policies) > 0) {
				t.Errorf("Hashes = %v, want %v", r.Hashes(), len(tt.policies) > 0)
			}
		})
	}
}

// TestHashOfExistingCookie verifies that a policy for an existing cookie generates none, and that the
// next policy applies without the cookie.
func TestHashOfExistingCookie(t *testing.T) {
	existing, header := config.HashPolicy{Cookie: "s", ExistingCookie: true}, config.HashPolicy{Header: "X-User"}
	for _, tt := range []struct {
		name     string
		policies []config.HashPolicy
		headers  []string
		want     uint64
		cookie   string // the generated one; "": none
	}{
		{"with the cookie", []config.HashPolicy{existing}, []string{"Cookie", "s=a"}, hash.String("a"), ""},
		{"without the cookie", []config.HashPolicy{existing}, nil, 0, ""},
		{"next policy", []config.HashPolicy{existing, header}, []string{"X-User", "u"}, hash.String("u"), ""},
		{"next policy generates a cookie", []config.HashPolicy{existing, {Cookie: "t"}}, nil, 0xabcd, "t=000000000000abcd; HttpOnly"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := request("GET", "a.test", "/", tt.headers...)
			r := hashRoute(t, x, tt.policies...)
			sum, newCookie := r.Hash(x, 0xabcd)
			if sum != tt.want || newCookie != (tt.cookie != "") {
				t.Errorf("Hash = %#x, %v, want %#x, %v", sum, newCookie, tt.want, tt.cookie != "")
			}
			if !newCookie {
				return
			}
			x.Record.Hash = sum
			if r.SetCookie(x); x.Response.Header.Get("Set-Cookie") != tt.cookie {
				t.Errorf("Set-Cookie: %s, want %s", x.Response.Header.Get("Set-Cookie"), tt.cookie)
			}
		})
	}
}

func TestHashCreatesMissingCookie(t *testing.T) {
	tests := []struct {
		name   string
		policy config.HashPolicy
		want   string
	}{
		{"session cookie", config.HashPolicy{Cookie: "s"}, "s=000000000000abcd; HttpOnly"},
		{"with a path", config.HashPolicy{Cookie: "s", CookiePath: "/shop"}, "s=000000000000abcd; Path=/shop; HttpOnly"},
		{"with a TTL", config.HashPolicy{Cookie: "s", CookiePath: "/", CookieTTL: time.Hour}, "s=000000000000abcd; Path=/; Max-Age=3600; HttpOnly"},
		{"TTL below a second", config.HashPolicy{Cookie: "s", CookieTTL: time.Millisecond}, "s=000000000000abcd; Max-Age=1; HttpOnly"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := request("GET", "a.test", "/", "Cookie", "other=1")
			r := hashRoute(t, x, config.HashPolicy{Header: "x-none"}, tt.policy, config.HashPolicy{SourceIP: true})
			sum, newCookie := r.Hash(x, 0xabcd)
			if sum != 0xabcd || !newCookie {
				t.Fatalf("Hash = %#x, %v, want 0xabcd and a cookie", sum, newCookie)
			}
			x.Record.Hash = sum
			r.SetCookie(x)
			setCookie := x.Response.Header.Get("Set-Cookie")
			if setCookie != tt.want {
				t.Errorf("Set-Cookie: %s, want %s", setCookie, tt.want)
			}
			pair, _, _ := strings.Cut(setCookie, ";")
			next := request("GET", "a.test", "/", "Cookie", pair)
			if nextSum, newCookie := r.Hash(next, 1); nextSum != sum || newCookie {
				t.Errorf("with the cookie: Hash = %#x, %v, want the same hash and no cookie", nextSum, newCookie)
			}
		})
	}
}

func TestRPCIgnoresCookiePolicy(t *testing.T) {
	x := request("", "a.test", "/", "user", "ann")
	x.Meta.Protocol = string(config.Dubbo)
	r := hashRoute(t, x, config.HashPolicy{Cookie: "s"}, config.HashPolicy{Header: "user"})
	if got, newCookie := r.Hash(x, 99); got != hash.String("ann") || newCookie {
		t.Errorf("Hash = %#x, %v, want the hash of the attachment, false", got, newCookie)
	}
}

func TestInvalidHashPoliciesAreRejected(t *testing.T) {
	for _, tt := range []struct {
		policy config.HashPolicy
		want   string
	}{
		{config.HashPolicy{}, "nothing to hash"},
		{config.HashPolicy{Cookie: "a b"}, `"a b" is not a valid cookie name`},
		{config.HashPolicy{Cookie: "a;b"}, `"a;b" is not a valid cookie name`},
		{config.HashPolicy{Cookie: "a", CookiePath: "/;HttpOnly"}, `"/;HttpOnly" is not a valid cookie path`},
		{config.HashPolicy{Cookie: "a", CookiePath: "/\r\nx"}, `is not a valid cookie path`},
	} {
		_, err := Compile(&config.RouteTable{VirtualHosts: []*config.VirtualHost{{Domains: []string{"*"}, Routes: []*config.Route{
			{Forward: &config.Forward{Cluster: "c", HashPolicies: []config.HashPolicy{tt.policy}}},
		}}}})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want %q", tt.policy, err, tt.want)
		}
	}
}

func TestHashDoesNotAllocate(t *testing.T) {
	x := request("GET", "a.test", "/?id=7", "Cookie", "session=abc")
	r := hashRoute(t, x, config.HashPolicy{Header: "x-none"}, config.HashPolicy{Query: "none"}, config.HashPolicy{Cookie: "session"})
	if n := testing.AllocsPerRun(100, func() { r.Hash(x, 1) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkHash(b *testing.B) {
	x := request("GET", "a.test", "/", "Accept", "*/*", "x-user", "6ba7b810-9dad-11d1-80b4-00c04fd430c8")
	t, err := Compile(&config.RouteTable{VirtualHosts: []*config.VirtualHost{{Domains: []string{"*"}, Routes: []*config.Route{
		{Forward: &config.Forward{Cluster: "c", HashPolicies: []config.HashPolicy{{Header: "x-user"}}}},
	}}}})
	if err != nil {
		b.Fatal(err)
	}
	r := t.Match(x)
	b.ReportAllocs()
	for b.Loop() {
		r.Hash(x, 1)
	}
}

// TestHashRewrite verifies which requests have the same hash, as in Envoy 1.40.
func TestHashRewrite(t *testing.T) {
	hashOf := func(c config.HashPolicy, path string, headers ...string) uint64 {
		x := request("GET", "a.test", path, headers...)
		r := compileAndMatch(t, &config.Route{Forward: &config.Forward{Cluster: "c", HashPolicies: []config.HashPolicy{c}}}, x)
		sum, _ := r.Hash(x, 0)
		return sum
	}
	plain := config.HashPolicy{Header: "x-u"}
	user := config.HashPolicy{Header: "x-u", HeaderRewrite: &config.RegexRewrite{Pattern: "^(user-[0-9]+)-.*$", Substitution: `\1`}}
	letters := config.HashPolicy{Header: "x-u", HeaderRewrite: &config.RegexRewrite{Pattern: "[0-9]", Substitution: ""}}
	path := config.HashPolicy{Header: ":path", HeaderRewrite: &config.RegexRewrite{Pattern: "^/([^/?]+).*$", Substitution: `\1`}}
	for _, test := range []struct {
		name      string
		got, want uint64
	}{
		{"a rewritten value", hashOf(user, "/", "x-u", "user-1-a"), hashOf(plain, "/", "x-u", "user-1")},
		{"no match", hashOf(user, "/", "x-u", "other-1-a"), hashOf(plain, "/", "x-u", "other-1-a")},
		{"every match", hashOf(letters, "/", "x-u", "1a2b3"), hashOf(plain, "/", "x-u", "ab")},
		{"an empty result", hashOf(letters, "/", "x-u", "12"), hashOf(plain, "/", "x-u", "")},
		{"several values", hashOf(user, "/", "x-u", "user-2-b", "x-u", "user-1-a"), hashOf(plain, "/", "x-u", "user-1", "x-u", "user-2")},
		{"no header", hashOf(user, "/"), 0},
		{"the path", hashOf(path, "/x/2?q"), hashOf(plain, "/", "x-u", "x")},
	} {
		if test.got != test.want {
			t.Errorf("%s: hash = %x, want %x", test.name, test.got, test.want)
		}
	}
	if hashOf(user, "/", "x-u", "user-1-a") == hashOf(user, "/", "x-u", "user-2-a") {
		t.Error("user-1 and user-2 have the same hash")
	}
	for want, rewrite := range map[string]config.RegexRewrite{`hash_policy: regex_rewrite: substitution "\\2"`: {Pattern: "(a)", Substitution: `\2`}, "missing closing )": {Pattern: "("}} {
		_, err := Compile(&config.RouteTable{VirtualHosts: []*config.VirtualHost{{Name: "v", Domains: []string{"*"}, Routes: []*config.Route{
			{Name: "r", Forward: &config.Forward{Cluster: "c", HashPolicies: []config.HashPolicy{{Header: "x", HeaderRewrite: &rewrite}}}}}}}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %s", rewrite, err, want)
		}
	}
}
