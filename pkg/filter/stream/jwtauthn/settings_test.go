package jwtauthn

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestKeySetWithoutUsableKeys verifies that a key set without usable keys is rejected, and that
// with accept_without_usable_keys the filter accepts the set and rejects every token.
func TestKeySetWithoutUsableKeys(t *testing.T) {
	const weak = `{"keys": [{"kty": "oct", "kid": "k1", "k": "c2hvcnQ", "alg": "HS256"}]}`
	settings := func(accept string) filtertest.Settings {
		return filtertest.Settings(`{"providers": {"one": {"local_jwks": {"accept_without_usable_keys": ` + accept + `, "inline_string": ` + strconv.Quote(weak) + `}}},
			"rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "one"}}]}`)
	}
	if problems := filtertest.DecodeErrors(t, Factory(), settings("false")); !strings.Contains(problems, errUnusable.Error()) {
		t.Errorf("rejected with %s, want %q", problems, errUnusable)
	}
	f, _ := filtertest.Build(t, Factory(), settings("true"))
	for _, token := range []string{"", "eyJhbGciOiJIUzI1NiIsImtpZCI6ImsxIn0.e30.AAAA", "eyJhbGciOiJub25lIn0.e30."} {
		if got := statusOf(t, f, "/", token); got != 401 {
			t.Errorf("token %q: %d, want 401", token, got)
		}
	}
}

// TestLowerCamelKeys verifies that the spelling of keys in MOSN's examples has the same effect.
func TestLowerCamelKeys(t *testing.T) {
	f, _ := filtertest.Build(t, newFactory(testClock), filtertest.Settings(`{"providers": {"origins_0": {"issuer": "id", "localJwks": {"inlineString": `+strconv.Quote(jwksOf("secret"))+`},
			"fromHeaders": [{"name": "x-token", "valuePrefix": "Token "}], "fromParams": ["token"], "forwardPayloadHeader": "x-claims"}},
		"rules": [{"match": {"prefix": "/"}, "requires": {"requiresAny": {"requirements": [{"providerName": "origins_0"}, {"allowMissing": {}}]}}}]}`))
	for path, want := range map[string]int{"/": 200, "/?token=e30.e30.AAAA": 401} {
		if got := statusOf(t, f, path, ""); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	if problems := filtertest.DecodeErrors(t, Factory(), `{"rules": [{"match": {"prefix": "/"}, "requires": {"providerNames": "a"}}]}`); !strings.Contains(problems, `"provider_name"`) {
		t.Errorf("unknown key: %s, want a suggestion of provider_name", problems)
	}
}

func TestBypassCORSPreflight(t *testing.T) {
	const origin, requestMethod = "Origin: https://shop.test", "Access-Control-Request-Method: PUT"
	for _, test := range []struct {
		name, bypass, method string
		fields               []string
		want                 int
	}{
		{"preflight", "true", "OPTIONS", []string{origin, requestMethod}, 200},
		{"preflight, disabled", "false", "OPTIONS", []string{origin, requestMethod}, 401},
		{"OPTIONS without Access-Control-Request-Method", "true", "OPTIONS", []string{origin}, 401},
		{"no Origin", "true", "OPTIONS", []string{requestMethod}, 401},
		{"GET with the headers of a preflight", "true", "GET", []string{origin, requestMethod}, 401},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, _ := filtertest.Build(t, newFactory(testClock), filtertest.Settings(`{"bypass_cors_preflight": `+test.bypass+`, "providers": {"one": `+localProvider("")+`},
				"rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "one"}}]}`))
			x := new(protocol.Exchange)
			x.Reset()
			x.Request.Method, x.Request.Path = test.method, "/"
			for _, field := range test.fields {
				name, value, _ := strings.Cut(field, ": ")
				x.Request.Header.Add(name, value)
			}
			app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error { x.LocalReply(200, "", ""); return nil })
			if err := x.Serve(t.Context(), f(app)); err != nil || x.Response.Status != test.want {
				t.Errorf("Serve = %v, status %d, want %d", err, x.Response.Status, test.want)
			}
		})
	}
}

func TestPathSeparatedPrefix(t *testing.T) {
	settings := func(prefix string) filtertest.Settings {
		return filtertest.Settings(`{"providers": {"one": ` + localProvider("") + `}, "rules": [{"match": {"path_separated_prefix": "` + prefix + `"}, "requires": {"provider_name": "one"}}]}`)
	}
	f, _ := filtertest.Build(t, newFactory(testClock), settings("/a"))
	for path, want := range map[string]int{"/a": 401, "/a?b": 401, "/a/b": 401, "/x/../a": 401, "/%61": 401, "/ab": 200, "/": 200, "/b/a": 200} {
		if got := statusOf(t, f, path, ""); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	for _, prefix := range []string{"a", "/a/", "/a?b"} {
		if problems := filtertest.DecodeErrors(t, Factory(), settings(prefix)); !strings.Contains(problems, "path_separated_prefix") {
			t.Errorf("%q is rejected with %q, want an error about path_separated_prefix", prefix, problems)
		}
	}
}
