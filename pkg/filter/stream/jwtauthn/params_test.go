package jwtauthn

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestTokenIsRemovedFromQuery verifies that the forwarded query has no parameter with the token,
// unless forward is set.
func TestTokenIsRemovedFromQuery(t *testing.T) {
	token := signToken(t, jwt.SigningMethodRS256, "rsa", validClaims(nil), nil)
	for _, test := range []struct{ name, extra, path, want string }{
		{"only parameter", `, "from_params": ["t"]`, "/a?t=T", "/a"},
		{"default parameter", ``, "/a?access_token=T&b=1", "/a?b=1"},
		{"between other parameters", `, "from_params": ["t"]`, "/a?x=%20y+z&t=T&&=v&w", "/a?x=%20y+z&&=v&w"},
		{"twice", `, "from_params": ["t"]`, "/a?t=T&b&t=T", "/a?b"},
		{"escaped name", `, "from_params": ["t"]`, "/a?%74=T", "/a"},
		{"other parameter", `, "from_params": ["t"]`, "/a?t=T&u=T", "/a?u=T"},
		{"forwarded", `, "from_params": ["t"], "forward": true`, "/a?t=T&b", "/a?t=T&b"},
	} {
		for _, rewritten := range []bool{false, true} {
			f, _ := filtertest.Build(t, newFactory(testClock), filtertest.Settings(`{"providers": {"one": `+localProvider(test.extra)+`}, "rules": [{"requires": {"provider_name": "one"}}]}`))
			x := filtertest.NewRequest(strings.ReplaceAll(test.path, "T", token))
			if rewritten {
				x.Record.OriginalPath = "/old" + x.Request.Path
			}
			if err := x.Serve(t.Context(), f(filtertest.Application())); err != nil || x.Response.Status != 200 {
				t.Fatalf("%s: status %d, Serve = %v, detail %s; want 200, nil", test.name, x.Response.Status, err, x.Record.Detail)
			}
			if got := strings.ReplaceAll(x.Request.Path, token, "T"); got != test.want {
				t.Errorf("%s: the forwarded path is %s, want %s", test.name, got, test.want)
			}
			if got := strings.ReplaceAll(x.Record.OriginalPath, token, "T"); rewritten && got != "/old"+test.want {
				t.Errorf("%s: OriginalPath is %s, want %s", test.name, got, "/old"+test.want)
			}
		}
	}
}

func TestTokenInCookieIsKept(t *testing.T) {
	token := signToken(t, jwt.SigningMethodRS256, "rsa", validClaims(nil), nil)
	got, x := serveRequest(t, `{"providers": {"one": `+localProvider(`, "from_cookies": ["s"]`)+`}, "rules": [{"requires": {"provider_name": "one"}}]}`, "/", "Cookie: a=b; s="+token)
	if x.Response.Status != 200 || got.Get("cookie") != "a=b; s="+token {
		t.Errorf("status %d, cookie %q; want 200, %q", x.Response.Status, got.Get("cookie"), "a=b; s="+token)
	}
}

// TestAnotherAudienceIsForbidden verifies that only a token that is valid except for its audience
// gets a 403, as in Envoy.
func TestAnotherAudienceIsForbidden(t *testing.T) {
	const one, both = `{"provider_name": "one"}`, `{"requires_any": {"requirements": [{"provider_name": "one"}, {"provider_name": "two"}]}}`
	token := func(claims map[string]any) string {
		return signToken(t, jwt.SigningMethodRS256, "rsa", validClaims(claims), nil)
	}
	otherAudience := token(map[string]any{"aud": "bank"})
	for _, test := range []struct {
		name, requires, token string
		want                  int
	}{
		{"other audience", one, otherAudience, 403},
		{"no audience", one, token(map[string]any{"aud": nil}), 403},
		{"other audience, expired", one, token(map[string]any{"aud": "bank", "exp": testNow.Add(-time.Hour).Unix()}), 401},
		{"other audience and issuer", one, token(map[string]any{"aud": "bank", "iss": "x"}), 401},
		{"other audience, invalid signature", one, otherAudience[:len(otherAudience)-8] + "AAAAAAAA", 401},
		{"audience is not a string", one, token(map[string]any{"aud": 1}), 401},
		{"one of several providers", both, otherAudience, 403},
		{"several providers, expired", both, token(map[string]any{"aud": "bank", "exp": testNow.Add(-time.Hour).Unix()}), 401},
	} {
		f, _ := filtertest.Build(t, newFactory(testClock), filtertest.Settings(`{"providers": {"one": `+localProvider(`, "audiences": ["shop"]`)+
			`, "two": `+strings.ReplaceAll(localProvider(""), "id.test", "other.test")+`}, "rules": [{"requires": `+test.requires+`}]}`))
		x := filtertest.NewRequest("/", "Authorization: Bearer "+test.token)
		app := protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error {
			t.Errorf("%s: the application was called", test.name)
			return nil
		})
		if err := x.Serve(t.Context(), f(app)); err != nil || x.Response.Status != test.want {
			t.Errorf("%s: %d, %v; want %d (%s)", test.name, x.Response.Status, err, test.want, x.Record.Detail)
		}
		if challenged := x.Response.Header.Get("WWW-Authenticate") != ""; challenged != (test.want == 401) {
			t.Errorf("%s: has WWW-Authenticate: %t, want %t", test.name, challenged, test.want == 401)
		}
	}
}
