package resource

import (
	"testing"

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
