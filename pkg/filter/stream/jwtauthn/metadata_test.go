package jwtauthn

import (
	"slices"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestClaimsAreMetadata verifies that claims are in the namespace and under the keys that other
// filters, such as rbac, look up.
func TestClaimsAreMetadata(t *testing.T) {
	token := signToken(t, jwt.SigningMethodRS256, "rsa", validClaims(map[string]any{
		"n": 12345678901, "realm": map[string]any{"role": "admin", "ok": true}, "list": []any{"a", []any{"b"}, nil}}), nil)
	_, x := serveRequest(t, `{"providers": {"one": `+localProvider(`, "payload_in_metadata": "claims"`)+`}, "rules": [{"requires": {"provider_name": "one"}}]}`, "/", "Authorization: Bearer "+token)
	for name, want := range map[string][]string{
		"sub": {"ann"}, "n": {"12345678901"}, "realm/role": {"admin"}, "realm/ok": {"true"}, "list": {"a", "b"}, "realm": nil, "none": nil,
	} {
		key := protocol.MetadataKey(append([]string{"claims"}, strings.Split(name, "/")...)...)
		if got := slices.Collect(x.Metadata.Values("envoy.filters.http.jwt_authn", key)); !slices.Equal(got, want) {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	_, x = serveRequest(t, `{"providers": {"one": `+localProvider(`, "payload_in_metadata": "claims"`)+`}, "rules": [{"requires": {"allow_missing_or_failed": {}}}]}`, "/", "Authorization: Bearer "+token+"x")
	if n := x.Metadata.Len(); n != 0 {
		t.Errorf("an invalid token set %d metadata values, want 0", n)
	}
}
