package rbac

import (
	"context"
	"testing"

	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

func TestShadowMetadata(t *testing.T) {
	const deny = `{"shadow_rules": {"action": "DENY", "policies": {"custom": {"permissions": [{"url_path": {"path": {"prefix": "/admin"}}}], "principals": [{"any": true}]}}},
		"shadow_rules_stat_prefix": "p_", "shadow_rules_metadata": true}`
	const allow = `{"shadow_rules": {"action": "ALLOW", "policies": {"custom": {"permissions": [{"url_path": {"path": {"prefix": "/admin"}}}], "principals": [{"any": true}]}}},
		"shadow_rules_metadata": true}`
	for _, test := range []struct {
		settings             filtertest.Settings
		path, prefix         string
		wantResult, wantName string
	}{
		{deny, "/admin/x", "p_", "denied", "custom"},
		{deny, "/other", "p_", "allowed", ""},
		{deny, "/x/../admin", "p_", "denied", "custom"}, // ambiguous: a later filter must not skip the request
		{allow, "/admin", "", "allowed", "custom"},
		{allow, "/other", "", "denied", ""},
		{`{"shadow_rules": {"policies": {}}}`, "/", "", "", ""},
	} {
		f, _ := filtertest.Build(t, Factory(), test.settings)
		x := new(protocol.Exchange)
		x.Reset()
		x.Request.Method, x.Request.Path = "GET", test.path
		served := false
		next := protocol.ServiceFunc(func(_ context.Context, x *protocol.Exchange) error {
			served = true
			result, _ := x.Metadata.Lookup("envoy.filters.http.rbac", test.prefix+"shadow_engine_result")
			name, _ := x.Metadata.Lookup("envoy.filters.http.rbac", test.prefix+"shadow_effective_policy_id")
			if result != test.wantResult || name != test.wantName {
				t.Errorf("%s: metadata %q, %q; want %q, %q", test.path, result, name, test.wantResult, test.wantName)
			}
			return nil
		})
		if err := x.Serve(t.Context(), f(next)); err != nil || !served {
			t.Errorf("%s: %v, want the request to pass", test.path, err)
		}
	}
}
