package jwtauthn

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestKeySetWithoutUsableKeys verifies that such a set is rejected, or rejects every token if
// accept_without_usable_keys is set.
func TestKeySetWithoutUsableKeys(t *testing.T) {
	const weak = `{"keys": [{"kty": "oct", "kid": "k1", "k": "c2hvcnQ", "alg": "HS256"}]}`
	settings := func(lenient string) filtertest.Settings {
		return filtertest.Settings(`{"providers": {"one": {"local_jwks": {"accept_without_usable_keys": ` + lenient + `, "inline_string": ` + strconv.Quote(weak) + `}}},
			"rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "one"}}]}`)
	}
	if problems := filtertest.DecodeErrors(t, Factory(), settings("false")); !strings.Contains(problems, errUnusable.Error()) {
		t.Errorf("it is rejected for %s", problems)
	}
	made, _ := filtertest.Build(t, Factory(), settings("true"))
	for _, token := range []string{"", "eyJhbGciOiJIUzI1NiIsImtpZCI6ImsxIn0.e30.AAAA", "eyJhbGciOiJub25lIn0.e30."} {
		if got := statusOf(t, made, "/", token); got != 401 {
			t.Errorf("a token %q: %d, want 401", token, got)
		}
	}
}

func TestBypassCORSPreflight(t *testing.T) {
	const origin, asks = "Origin: https://shop.test", "Access-Control-Request-Method: PUT"
	for _, test := range []struct {
		name, bypass, method string
		fields               []string
		want                 int
	}{
		{"a preflight", "true", "OPTIONS", []string{origin, asks}, 200},
		{"not unless it is said", "false", "OPTIONS", []string{origin, asks}, 401},
		{"OPTIONS for something else", "true", "OPTIONS", []string{origin}, 401},
		{"without an origin", "true", "OPTIONS", []string{asks}, 401},
		{"another method with its fields", "true", "GET", []string{origin, asks}, 401},
	} {
		t.Run(test.name, func(t *testing.T) {
			made, _ := filtertest.Build(t, newFactory(testClock), filtertest.Settings(`{"bypass_cors_preflight": `+test.bypass+`, "providers": {"one": `+localProvider("")+`},
				"rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "one"}}]}`))
			x := new(protocol.Exchange)
			x.Reset()
			x.Request.Method, x.Request.Path = test.method, "/"
			for _, f := range test.fields {
				name, value, _ := strings.Cut(f, ": ")
				x.Request.Header.Add(name, value)
			}
			app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error { x.LocalReply(200, "", ""); return nil })
			if err := x.Serve(t.Context(), made(app)); err != nil || x.Response.Status != test.want {
				t.Errorf("Serve = %v, status %d, want %d", err, x.Response.Status, test.want)
			}
		})
	}
}

func TestPathSeparatedPrefix(t *testing.T) {
	settings := func(segments string) filtertest.Settings {
		return filtertest.Settings(`{"providers": {"one": ` + localProvider("") + `}, "rules": [{"match": {"path_separated_prefix": "` + segments + `"}, "requires": {"provider_name": "one"}}]}`)
	}
	made, _ := filtertest.Build(t, newFactory(testClock), settings("/a"))
	for path, want := range map[string]int{"/a": 401, "/a?b": 401, "/a/b": 401, "/x/../a": 401, "/%61": 401, "/ab": 200, "/": 200, "/b/a": 200} {
		if got := statusOf(t, made, path, ""); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	for _, segments := range []string{"a", "/a/", "/a?b"} {
		if problems := filtertest.DecodeErrors(t, Factory(), settings(segments)); !strings.Contains(problems, "path_separated_prefix") {
			t.Errorf("%q is rejected with %q", segments, problems)
		}
	}
}
