package resource

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestHashCookieAttributes(t *testing.T) {
	route, ignored := readRouteOf(t, `{"match": {"prefix": "/"}, "route": {"cluster": "c", "hash_policy": [{"cookie": {
		"name": "s", "ttl": "60s", "path": "/", "attributes": [{"name": "SameSite", "value": "Strict"}, {"name": "Secure"}]}}]}}`)
	want := []config.CookieAttribute{{Name: "SameSite", Value: "Strict"}, {Name: "Secure"}}
	if diff := cmp.Diff(want, route.Forward.HashPolicies[0].CookieAttributes); diff != "" || ignored != "" {
		t.Errorf("attributes, - want + got:\n%s; ignored %q", diff, ignored)
	}
}

// TestHashCookieTTL verifies that only a policy with a ttl generates a cookie, as in Envoy.
func TestHashCookieTTL(t *testing.T) {
	for ttl, want := range map[string]config.HashPolicy{
		``:               {Cookie: "s", ExistingCookie: true},
		`, "ttl": "0s"`:  {Cookie: "s"},
		`, "ttl": "60s"`: {Cookie: "s", CookieTTL: time.Minute},
	} {
		route, _ := readRouteOf(t, `{"match": {"prefix": "/"}, "route": {"cluster": "c", "hash_policy": [{"cookie": {"name": "s"`+ttl+`}}]}}`)
		if diff := cmp.Diff(want, route.Forward.HashPolicies[0]); diff != "" {
			t.Errorf("cookie%s, - want + got:\n%s", ttl, diff)
		}
	}
}
