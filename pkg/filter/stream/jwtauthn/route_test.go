package jwtauthn

import (
	"context"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestChallengeRealm(t *testing.T) {
	settings := `{"providers": {"p": ` + localProvider("") + `}, "rules": [{"requires": {"provider_name": "p"}}], "challenge_realm": true}`
	for field, want := range map[string]string{
		"":                            `Bearer realm="http:///p?x"`,
		"Authorization: Bearer x.y.z": `Bearer realm="http:///p?x", error="invalid_token"`,
	} {
		var fields []string
		if field != "" {
			fields = []string{field}
		}
		_, x := serveRequest(t, settings, "/p?x", fields...)
		if got := x.Response.Header.Get("WWW-Authenticate"); got != want {
			t.Errorf("%q: challenge %s, want %s", field, got, want)
		}
	}
}

// TestRouteRequirement verifies that a route selects a requirement by name, and that an undefined
// name rejects all requests.
func TestRouteRequirement(t *testing.T) {
	f := newFactory(testClock)
	listener := filtertest.Decode(t, f, filtertest.Settings(`{"providers": {"p": `+localProvider("")+`}, "rules": [{"requires": {"provider_name": "p"}}],
		"requirement_map": {"optional": {"allow_missing": {}}, "p": {"provider_name": "p"}}}`))
	for name, want := range map[string]int{"optional": 200, "p": 401, "undefined": 401} {
		merged := f.Inherit(listener, filtertest.Decode(t, f, filtertest.Settings(`{"requirement_name": "`+name+`"}`)))
		jwtAuthn, err := f.New(merged, filter.Env{Metrics: metrics.New(metrics.Options{})})
		if err != nil {
			t.Fatal(err)
		}
		x := new(protocol.Exchange)
		x.Reset()
		x.Request.Method, x.Request.Path = "GET", "/"
		app := protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
			x.LocalReply(200, "", "")
			return nil
		})
		if err := x.Serve(t.Context(), jwtAuthn(app)); err != nil {
			t.Fatal(err)
		}
		if x.Response.Status != want {
			t.Errorf("%s: status %d, want %d", name, x.Response.Status, want)
		}
	}
	route := filtertest.Decode(t, f, `{}`)
	if got := f.Inherit(listener, route); got != route {
		t.Errorf("without requirement_name: %+v, want the settings of the route", got)
	}
	if got := filtertest.DecodeErrors(t, f, `{"requirement_name": "p", "requirement_map": {"p": {"allow_missing": {}}}}`); !strings.Contains(got, "mutually exclusive") {
		t.Errorf("requirement_name with a map: %q, want an error", got)
	}
}
