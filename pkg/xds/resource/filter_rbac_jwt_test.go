package resource

import (
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"

	"github.com/weft-proxy/weft/pkg/filter/stream/jwtauthn"
)

// TestEmptyRBACMatcherIsRejected verifies that an empty matcher is rejected. In Envoy, such a
// matcher denies every request. Weft must not read a filter without rules, which allows every
// request.
func TestEmptyRBACMatcherIsRejected(t *testing.T) {
	m := &rbacv3.RBAC{}
	m.ProtoReflect().Mutable(m.ProtoReflect().Descriptor().Fields().ByName("matcher")) // present, but empty
	_, err := ReadExtension(marshaled(t, &corev3.TypedExtensionConfig{Name: "f", TypedConfig: packed(t, m)}), allCapabilities())
	if !strings.Contains(errorText(err), "typed_config.matcher: is not supported") {
		t.Errorf("error %v, want one about typed_config.matcher", err)
	}
}

// TestNormalizedJWTPayload verifies that normalize_payload_in_metadata is read and that
// failed_status_in_metadata is rejected. RBAC conditions evaluate the metadata of both.
func TestNormalizedJWTPayload(t *testing.T) {
	provider := func(rest string) string {
		return `{"@type": "jwt_authn.v3.JwtAuthentication", "providers": {"p": {"remote_jwks": {"http_uri": {"uri": "https://a/jwks", "cluster": "c", "timeout": "5s"}}, ` + rest + `}}}`
	}
	got, err := readFilter(t, provider(`"payload_in_metadata": "payload", "normalize_payload_in_metadata": {"space_delimited_claims": ["scope", "permission"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if n := got.(*jwtauthn.Config).Providers["p"].Normalize; n == nil || !slices.Equal(n.SpaceDelimited, []string{"scope", "permission"}) {
		t.Errorf("Normalize = %v, want scope and permission", n)
	}
	_, err = readFilter(t, provider(`"failed_status_in_metadata": "f"`))
	if !strings.Contains(errorText(err), "failed_status_in_metadata is not supported") {
		t.Errorf("error %v, want one about failed_status_in_metadata", err)
	}
}
