package router

import (
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestHashCookieAttributes(t *testing.T) {
	p := config.HashPolicy{
		Cookie: "s", CookiePath: "/", CookieTTL: time.Hour,
		CookieAttributes: []config.CookieAttribute{{Name: "SameSite", Value: "Strict"}, {Name: "Secure"}, {Name: "Domain", Value: "a.test"}},
	}
	x := request("GET", "a.test", "/")
	r := hashRoute(t, x, p)
	sum, newCookie := r.Hash(x, 0xabcd)
	if !newCookie {
		t.Fatal("Hash created no cookie")
	}
	x.Record.Hash = sum
	r.SetCookie(x)
	const want = "s=000000000000abcd; Path=/; Max-Age=3600; SameSite=Strict; Secure; Domain=a.test; HttpOnly"
	if got := x.Response.Header.Get("Set-Cookie"); got != want {
		t.Errorf("Set-Cookie: %s, want %s", got, want)
	}
}

func TestInvalidCookieAttributesAreRejected(t *testing.T) {
	for _, a := range []config.CookieAttribute{
		{}, {Name: "a b"}, {Name: "a;b"}, {Name: "a=b"}, {Name: "a", Value: "b; Domain=evil.test"}, {Name: "a", Value: "b\r\nx: y"},
	} {
		_, err := Compile(&config.RouteTable{VirtualHosts: []*config.VirtualHost{{Domains: []string{"*"}, Routes: []*config.Route{
			{Forward: &config.Forward{Cluster: "c", HashPolicies: []config.HashPolicy{{Cookie: "s", CookieAttributes: []config.CookieAttribute{a}}}}},
		}}}})
		if err == nil || !strings.Contains(err.Error(), "attribute") {
			t.Errorf("%+v: error %v, want an error about the attribute", a, err)
		}
	}
}
